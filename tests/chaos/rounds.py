"""One round of chaos: the processes in it, and the checks.

A kind (kinds.py) starts gctrace and a program, does something to them, and ends; `Round.judge` then
checks the result. Everything random derives from the round's seed.
"""

import collections
import glob
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import kernel

HERE = os.path.dirname(os.path.abspath(__file__))
# No process may stay stopped longer than this, in seconds.
MOST_STOPPED = 2.5
# All processes must have exited within this time after the kind's own end, in seconds.
PATIENCE = 60
# Prefixes of the names of losses that stand for pauses.
LOST_PAUSES = ("pauses:", "collections:")
# Text in a note about a process that was not recorded completely.
MAY_MISS = ("may be missing",)


SETTINGS = ("none", "threshold=700,10,10", "threshold=7000,10,10", "disable", "plan:3", "freeze")


def apply(round):
    step = round.random.choice(([], ["--step-function", "step"]))
    return ["apply", "--gc", round.random.choice(SETTINGS)] + step


def tune(round):
    return ["tune", "--budget", "20s", "--settings", "none|threshold=7000,10,10",
            "--step-function", "step"]


def heap(round):
    return ["heap", "--at-full", str(round.random.randint(1, 3))]


def auto(round):
    return ["auto", "--force", "--step-function", round.random.choice(("step", "train_step"))]


def kept(round):
    mode = round.random.choice(("ebpf", "inject"))
    return ["record", "--mode", mode, "--keep", "10m", "--on-pause", round.random.choice(("10us", "1ms", "1s"))]


# Modes that start the command and write something else than one trace: the beginning of their command lines.
WITHOUT_TRACE = {"apply": apply, "tune": tune, "heap": heap, "auto": auto, "kept": kept}


class Refused(Exception):
    """This kind cannot run here, for the reason given."""


class Failed(Exception):
    """The round has failed; what is wrong."""


class Round:
    def __init__(self, options, kind, mode, seed):
        self.options, self.kind, self.mode, self.seed = options, kind, mode, seed
        self.random = random.Random("%d %s %s" % (seed, kind, mode))
        self.place = os.path.join(options.folder, "%s-%s-%d" % (kind, mode, seed))
        shutil.rmtree(self.place, ignore_errors=True)
        os.makedirs(os.path.join(self.place, "truth"))
        # Programs may run as another user.
        for path in (self.place, os.path.join(self.place, "truth")):
            os.chmod(path, 0o777)
        self.trace = os.path.join(self.place, "trace.json" + self.random.choice(("", "", ".gz")))
        self.traces = [self.trace]
        self.findings, self.excused, self.done = [], set(), []
        # Set by the kind: gctrace was killed; the trace is not expected to cover the whole program.
        self.is_gctrace_killed = self.is_cut_short = False
        # gctrace may refuse to start: limits and disks are too small.
        self.may_refuse = self.may_panic = self.may_lack_end = False
        # A trace reported that collections of a process may be missing; gctrace did not start at
        # all.
        self.is_incomplete = self.was_refused = False
        # Seconds to wait for a process to end.
        self.patience = PATIENCE
        self.figures = {}
        # How collections are recorded; `top` chooses its own mode.
        self.how = mode if mode != "top" else self.random.choice(("ebpf", "inject", "both"))
        self.gctrace = None
        kernel.adopt_orphans()
        self.loaded_before = kernel.loaded()
        self.watch = kernel.StopWatch(self.excused)
        self.watch.start()

    # What is run ------------------------------------------------------------------------------------------

    def python(self):
        return self.random.choice(self.options.pythons)

    def victim(self, python=None, **words):
        """Command line of the program."""
        shape = {"steps": self.random.randint(8, 25), "pace": self.random.choice((0.005, 0.02, 0.04))}
        for name, most in (("children", 2), ("forks", 3), ("copies", 4), ("threads", 3)):
            shape[name] = self.random.choice((0, self.random.randint(0, most)))
        shape.update(words)
        command = [python or self.python(), self.copy("victim.py"), os.path.join(self.place, "truth")]
        for name, value in sorted(shape.items()):
            command += ["--" + name] if value is True else ["--%s" % name, str(value)] if value else []
        return command

    def copy(self, name):
        """A file in this folder, readable by every user."""
        path = os.path.join(self.place, os.path.basename(name))
        shutil.copy(os.path.join(HERE, name), path)
        os.chmod(path, 0o755)
        return path

    def record(self, command, *words, **settings):
        """Starts gctrace with a command."""
        if self.mode == "top":
            line = ["top", "--format", "text", "-d", "0.2", "--record", self.trace, "--output", self.file("output")]
            line += ["--mode", self.how] + self.whims()
        elif self.mode in WITHOUT_TRACE:
            line = WITHOUT_TRACE[self.mode](self) + ["-o", os.path.join(os.path.dirname(self.trace), "result")]
        else:
            line = ["record", "--mode", self.mode, "-o", self.trace] + self.whims()
        output = "lines" if self.mode == "top" else "output"
        return self.start(line + list(words) + ["--"] + command, output=output, **settings)

    def attach(self, pid, trace, *words):
        """Starts gctrace on a running process."""
        line = ["top", "--format", "text", "--record"] if self.mode == "top" else ["record", "-o"]
        return self.start(line + [trace, "-p", str(pid)] + self.whims() + list(words), output="lines")

    def whims(self):
        chosen = []
        for likely, words in ((0.15, ["--ring-size", "64KiB"]), (0.1, ["--stack-depth", "0"]),
                              (0.1, ["--counters", "none"]), (0.1, ["--alloc"])):
            chosen += words if self.random.random() < likely else []
        return chosen

    def start(self, words, limits=(), output="output", session=True):
        """Starts gctrace."""
        self.done.append("gctrace " + " ".join(words))

        def prepare():
            for limit, value in limits:
                resource.setrlimit(limit, (value, value))

        with open(self.file(output), "ab") as out, open(self.file("messages"), "ab") as messages:
            self.gctrace = subprocess.Popen(
                [self.options.gctrace] + words, cwd=self.place, stdin=subprocess.DEVNULL, stdout=out,
                stderr=messages, start_new_session=session, preexec_fn=prepare)
        return self.gctrace

    def run_plainly(self, command, limits=()):
        """Starts a command without gctrace."""
        self.done.append(" ".join(command))
        with open(self.file("output"), "ab") as out, open(self.file("messages"), "ab") as messages:
            return subprocess.Popen(command, cwd=self.place, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=messages, start_new_session=True)

    def reference(self, command, limits=()):
        """Output and exit code of a command without gctrace; cached for later rounds."""
        anonymous = [word.replace(self.place, "PLACE") for word in command]
        key = hashlib.sha256(json.dumps([anonymous, limits]).encode()).hexdigest()[:24]
        kept = os.path.join(self.options.folder, "references", key + ".json")
        if os.path.exists(kept):
            with open(kept) as file:
                return json.load(file)

        def prepare():
            for limit, value in limits:
                resource.setrlimit(limit, (value, value))

        started = time.monotonic()
        done = subprocess.run(command, cwd=self.place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=prepare)
        truth = {"output": done.stdout.decode(), "code": done.returncode,
                 "seconds": time.monotonic() - started}
        for path in glob.glob(self.file("truth/*")):
            os.unlink(path)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        with open("%s.%d" % (kept, os.getpid()), "w") as file:
            json.dump(truth, file)
        os.rename("%s.%d" % (kept, os.getpid()), kept)
        return truth

    # What is done to it -----------------------------------------------------------------------------------

    def file(self, name):
        return os.path.join(self.place, name)

    def sleep(self, least, most):
        """Waits for a random time; returns it."""
        seconds = self.random.uniform(least, most)
        self.done.append("%.3f s later" % seconds)
        time.sleep(seconds)
        return seconds

    def signal(self, pid, number):
        """Sends a signal; False if the process is gone."""
        self.done.append("%s to %d" % (signal.Signals(number).name, pid))
        try:
            os.kill(pid, number)
            return True
        except ProcessLookupError:
            return False

    def below(self, fits):
        """Pid of the first child of this round's gctrace with a matching command line; None without
        one."""
        for pid in kernel.children(self.gctrace.pid):
            words = kernel.words(pid)
            if words and fits(words) and kernel.state(pid) != "Z":
                return pid
        return None

    def guardian(self):
        return self.below(lambda words: words[-1].startswith("__"))

    def program(self):
        """The command; None if it has not been started or has exited. Before it, gctrace itself
        runs there, to try loading its library."""
        return self.below(lambda words: not any(word.startswith("__") for word in words))

    def signals_sent(self):
        """Names of the signals that were sent."""
        return [word for line in self.done for word in line.split()[:1] if word.startswith("SIG")]

    # Checks -----------------------------------------------------------------------------------------------

    def fault(self, text):
        self.findings.append(text)

    def wait(self, process, what):
        """Exit code of a child, waiting at most as long as the round has patience."""
        try:
            return process.wait(self.patience)
        except subprocess.TimeoutExpired:
            raise Failed("%s does not end: %s" % (what, kernel.describe(process.pid)))

    def wait_for_all(self):
        """Waits until no process of this round is left."""
        end = time.monotonic() + PATIENCE
        while True:
            left = kernel.descendants(os.getpid())
            if not left:
                return
            if time.monotonic() > end:
                raise Failed("left over: %s" % "; ".join(map(kernel.describe, left)))
            time.sleep(0.02)

    def same(self, reference, code):
        """Checks that output and exit code are those of the program alone; `code`: gctrace's exit
        code, None if it was killed."""
        with open(self.file("output"), errors="replace", newline="") as file:
            output = file.read()
        if output != reference["output"]:
            self.fault("output differs: %r instead of %r" % (output[-300:], reference["output"][-300:]))
        expected = reference["code"] if reference["code"] >= 0 else 128 - reference["code"]
        if code is not None and code != expected:
            self.fault("exit code %s instead of %d" % (code, expected))

    def messages(self):
        if not os.path.exists(self.file("messages")):
            return ""
        with open(self.file("messages"), errors="replace") as file:
            return file.read()

    def is_refused(self, code):
        """Whether gctrace refused before it started anything: it reports why, and nothing ran."""
        self.was_refused = bool(code in (1, 2) and self.messages().strip() and not os.listdir(self.file("truth")))
        if self.was_refused and not self.may_refuse:
            self.fault("gctrace refused: %s" % self.messages()[-300:])
        return self.was_refused

    def truths(self):
        found = {}
        for path in glob.glob(self.file("truth/*.json")):
            with open(path) as file:
                truth = json.load(file)
            found[truth["pid"]] = truth
        return found

    def analyze(self, path):
        analyzed = subprocess.run([self.options.gctrace, "analyze", path], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
        if analyzed.returncode:
            self.fault("analyze ends with %d: %s" % (analyzed.returncode, analyzed.stderr.decode()[-300:]))

    def read_trace(self, path, is_killed):
        """A trace's events, as read by gctrace and by another JSON reader; None if there are
        none."""
        if not os.path.exists(path) or not os.path.getsize(path):
            return None
        self.analyze(path)
        is_compressed = path.endswith(".gz")
        try:
            with (gzip.open if is_compressed else open)(path, "rt", errors="replace") as file:
                return json.load(file)["traceEvents"]
        except (ValueError, EOFError, OSError) as error:
            # docs/trace-format.md: a plain one is closed after every flush, a compressed one only at its end.
            if not (is_compressed and (is_killed or self.is_cut_short)):
                self.fault("the trace is not closed JSON: %s" % error)
            return None

    def count(self, events):
        """Compares pauses in the trace and reported losses with the programs' own counts."""
        end = next((event["args"] for event in events if event["name"] == "gctrace_end"), None)
        if end is None and not (self.is_gctrace_killed or self.may_lack_end):
            self.fault("the trace has no end")
        truths, lost = self.truths(), self.lost_pauses(end or {})
        unsure = {event["pid"] for event in events if event["name"] == "gctrace_note"
                  and any(word in event["args"]["message"] for word in MAY_MISS)}
        unexamined = any((end or {}).get("processes", {}).get("unexamined", {}).values())
        seen, sources = {pid: [] for pid in truths}, collections.Counter()
        for event in events:
            if event.get("cat") == "gc" and event["pid"] in seen:
                seen[event["pid"]].append(round(event["ts"] * 1000))
                sources[event["args"].get("source", "probes")] += 1
        missing = surplus = excused = 0
        for pid, truth in truths.items():
            within = [ts for ts in seen[pid] if truth["start_ns"] <= ts <= truth["end_ns"]]
            if truth["collections"] > len(within) and (pid in unsure or unexamined):
                self.is_incomplete = True
                excused += truth["collections"] - len(within)
                continue
            missing += max(0, truth["collections"] - len(within))
            surplus += max(0, len(within) - truth["collections"])
        outside = sum(truth["all"] - truth["collections"] + (8 if truth["start_ns"] else 0)
                      for truth in truths.values())
        self.figures.update(sources, processes=len(truths), missing=missing, excused=excused, surplus=surplus, lost=lost,
                            collections=sum(truth["collections"] for truth in truths.values()))
        if surplus:
            self.fault("%d pauses more than collections" % surplus)
        if lost is None or end is None or self.is_cut_short:
            return
        if missing > lost or lost > missing + excused + outside:
            self.fault("%d collections are not in the trace, and %d of processes with a note; it reports %d losses: %s" % (
                missing, excused, lost, end.get("lost")))

    def lost_pauses(self, end):
        """None if losses of other kinds make the number meaningless."""
        lost = 0
        for name, number in end.get("lost", {}).items():
            if name.startswith(LOST_PAUSES):
                lost += number
            if name.startswith("process"):
                return None
        return lost

    def judge(self):
        """The checks that apply to every round."""
        self.wait_for_all()
        self.watch.over.set()
        self.watch.join()
        if self.watch.longest > MOST_STOPPED:
            self.fault("stopped for %.1f s: %s" % (self.watch.longest, self.watch.worst))
        if "panicked" in self.messages() and not self.may_panic:
            self.fault("gctrace panicked")
        left = kernel.ownerless(self.loaded_before, 5)
        if left:
            self.fault("BPF %s without an owner" % sorted(left))
        for trace in self.traces:
            events = self.read_trace(trace, self.is_gctrace_killed)
            if events:
                self.count(events)


def clean_up():
    """Kills every process that is left below this one."""
    for _ in range(50):
        left = kernel.descendants(os.getpid())
        for pid in left:
            for number in (signal.SIGKILL, signal.SIGCONT):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        if not left:
            return
        time.sleep(0.05)
    print("chaos: could not be killed: %s" % left, file=sys.stderr)
