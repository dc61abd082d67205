"""Rounds of chaos: gctrace and the programs it records are killed, stopped and starved at random times.

    chaos.py --gctrace FILE [--seed N] [--rounds N] [--seconds N] [--kinds LIST] [--modes LIST] [--jobs N]

Every round has its own seed, counted up from --seed, from which everything random in it derives;
with one kind and one mode a round is reproducible. rounds.py has what must hold for every round,
kinds.py what is done in it. A round that fails prints its command and findings, and keeps its
folder. Needs root. The last line is 'N passed, N failed'; exit code 1 if one failed.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import kernel
import kinds
import rounds

HERE = os.path.dirname(os.path.abspath(__file__))
# Maximum time of a round, in seconds: longer ones hang. For each process of a crowd half a second
# more.
LIMIT = 240


def pythons(manifest):
    """Interpreters to be recorded: those whose gc.get_stats() is reliable. Without the GIL they
    wait by sched_yield, and make no progress on a machine with more to do than CPUs."""
    unfit, found = {"incremental", "free-threaded", "container"}, []
    if manifest and os.path.exists(manifest):
        with open(manifest) as file:
            for line in file:
                _, version, traits, path = line.rstrip("\n").split("\t")[:4]
                if version != "-" and not unfit & set(traits.split(",")):
                    found.append(path)
    return found or [sys.executable]


def one(options, kind, mode, seed):
    """A round, in its own process; prints its result as a line of JSON."""
    outcome = {"state": "passed", "findings": []}
    round = rounds.Round(options, kind, mode, seed)
    started = time.monotonic()
    try:
        kinds.KINDS[kind][0](round)
        round.judge()
    except kinds.Refused as reason:
        outcome["state"], outcome["reason"] = "skipped", str(reason)
    except rounds.Failed as failure:
        round.fault(str(failure))
    except Exception:
        round.fault(traceback.format_exc())
    if round.findings:
        outcome.update(state="failed", findings=round.findings, done=round.done,
                       left=[kernel.describe(pid) for pid in kernel.descendants(os.getpid())])
    rounds.clean_up()
    outcome.update(place=round.place, stopped=round.watch.longest, killed=round.signals_sent(),
                   incomplete=round.is_incomplete, refused=round.was_refused, figures=round.figures,
                   seconds=time.monotonic() - started)
    if not round.findings and not options.keep:
        shutil.rmtree(round.place, ignore_errors=True)
    print(json.dumps(outcome))


class Schedule:
    """The next kind and mode."""

    def __init__(self, options):
        self.random = random.Random(options.seed)
        self.pairs = [(kind, mode) for kind, (_, modes, weight) in kinds.KINDS.items()
                      for mode in modes for _ in range(weight)
                      if kind in options.kinds and mode in options.modes]
        if not self.pairs:
            sys.exit("chaos: none of these kinds runs in these modes")
        self.next_seed, self.rest = options.seed, []

    def next(self):
        if not self.rest:
            self.rest = list(self.pairs)
            self.random.shuffle(self.rest)
        kind, mode = self.rest.pop()
        self.next_seed += 1
        return kind, mode, self.next_seed - 1


class Tally:
    def __init__(self):
        self.states = collections.Counter()
        self.by_pair = collections.defaultdict(collections.Counter)
        self.kills, self.longest, self.incomplete = collections.Counter(), 0.0, 0
        self.refused = 0

    def add(self, kind, mode, seed, outcome, figures):
        self.states[outcome["state"]] += 1
        self.by_pair[kind][mode] += outcome["state"] != "skipped"
        self.by_pair[kind]["failed"] += outcome["state"] == "failed"
        self.kills.update(outcome.get("killed", ()))
        self.longest = max(self.longest, outcome.get("stopped", 0))
        self.incomplete += outcome.get("incomplete", False)
        self.refused += outcome.get("refused", False)
        name = "seed %d %s %s" % (seed, kind, mode)
        if outcome["state"] == "skipped":
            print("skipped %s: %s" % (name, outcome["reason"]), flush=True)
        if figures and outcome.get("figures"):
            print("%s: %s, %.0f s" % (name, ", ".join(
                "%s %s" % figure for figure in sorted(outcome["figures"].items())), outcome["seconds"]), flush=True)
        if outcome["state"] == "failed":
            print("FAILED %s (again: --seed %d --rounds 1 --kinds %s --modes %s; kept: %s)" % (
                name, seed, kind, mode, outcome.get("place")))
            for label in ("done", "findings", "left"):
                for line in outcome.get(label, ()):
                    print("    %s: %s" % (label, line))
            sys.stdout.flush()

    def show(self):
        modes = list(kinds.EVERYWHERE)
        print("| kind | %s | failed |" % " | ".join(modes))
        print("|---|%s" % ("---|" * (len(modes) + 1)))
        for kind in kinds.KINDS:
            counts = self.by_pair[kind]
            if counts:
                cells = [str(counts[mode]) for mode in modes] + [str(counts["failed"])]
                print("| %s | %s |" % (kind, " | ".join(cells)))
        print("sent: %s; longest stop %.1f s; %d traces reported missing collections; "
              "%d times refused to start; %d skipped" % (
            ", ".join("%d x %s" % (number, name) for name, number in sorted(self.kills.items())) or "nothing",
            self.longest, self.incomplete, self.refused, self.states["skipped"]))
        print("%d passed, %d failed" % (self.states["passed"], self.states["failed"]), flush=True)


def start(options, kind, mode, seed):
    command = [sys.executable, os.path.abspath(__file__), "--one", "%s:%s:%d" % (kind, mode, seed)]
    for name in ("gctrace", "folder", "manifest", "crowd", "load"):
        command += ["--%s" % name, str(getattr(options, name))]
    command += ["--keep"] if options.keep else []
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    return process, (kind, mode, seed), time.monotonic()


def collect(process, started, limit):
    """The result of a round that has ended; None while it runs."""
    if process.poll() is None and time.monotonic() - started < limit:
        return None
    if process.poll() is None:
        left = [kernel.describe(pid) for pid in kernel.descendants(process.pid)]
        process.kill()
        process.communicate()
        return {"state": "failed", "findings": ["the round hangs"], "left": left}
    out, messages = process.communicate()
    try:
        return json.loads(out.decode().splitlines()[-1])
    except (ValueError, IndexError):
        return {"state": "failed", "findings": ["the round broke: %s" % messages.decode()[-2000:]]}


def drive(options):
    kernel.adopt_orphans()
    # Signals ignored here (nohup, a script's background) would be ignored in all child processes.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    schedule, tally, running = Schedule(options), Tally(), []
    started, reported, wanted_end = 0, 0, []
    end = time.monotonic() + options.seconds if options.seconds else None
    print("chaos: seed %d" % options.seed, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: wanted_end.append(True))
    while True:
        wanted = started < options.rounds and (end is None or time.monotonic() < end) and not wanted_end
        if wanted and len(running) < options.jobs:
            running.append(start(options, *schedule.next()))
            started += 1
            continue
        if not running:
            break
        time.sleep(0.05)
        for entry in list(running):
            outcome = collect(entry[0], entry[2], LIMIT + options.crowd / 2)
            if outcome:
                running.remove(entry)
                tally.add(*entry[1], outcome, options.figures)
                if not running:
                    rounds.clean_up()
        if started >= reported + 50:
            reported = started
            print("chaos: %d rounds started, %d failed" % (started, tally.states["failed"]), flush=True)
    tally.show()
    if not tally.states["failed"] and not options.keep:
        shutil.rmtree(options.folder, ignore_errors=True)
    return 1 if tally.states["failed"] or not tally.states["passed"] else 0


def main():
    def words(text):
        return text.split(",")

    parser = argparse.ArgumentParser()
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 10 ** 6) * 1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, help="start no round after this time")
    parser.add_argument("--kinds", type=words, default=list(kinds.KINDS), help=", ".join(kinds.KINDS))
    parser.add_argument("--modes", type=words, default=list(kinds.EVERYWHERE))
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time")
    parser.add_argument("--crowd", type=int, default=80, help="processes of the kind crowd")
    parser.add_argument("--load", type=int, default=4, help="busy processes beside them")
    parser.add_argument("--figures", action="store_true", help="print what each round counted")
    parser.add_argument("--keep", action="store_true", help="keep the folders of rounds that passed, too")
    parser.add_argument("--folder", help="of the rounds; default: a new one in /tmp")
    parser.add_argument("--manifest", default="", help="interpreters, as scripts/interpreters.sh lists them")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = (set(options.kinds) - set(kinds.KINDS)) | (set(options.modes) - set(kinds.EVERYWHERE))
    if unknown:
        sys.exit("chaos: no kind or mode %s" % ", ".join(sorted(unknown)))
    options.gctrace = os.path.abspath(options.gctrace)
    # Programs also run as other users, which may not be able to enter the checkout.
    options.folder = options.folder or tempfile.mkdtemp(prefix="gctrace-chaos-", dir="/tmp")
    os.makedirs(options.folder, exist_ok=True)
    os.chmod(options.folder, 0o755)
    options.pythons = pythons(options.manifest)
    if options.one:
        kind, mode, seed = options.one.rsplit(":", 2)
        return one(options, kind, mode, int(seed))
    return drive(options)


if __name__ == "__main__":
    sys.exit(main())
