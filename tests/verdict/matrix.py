#!/usr/bin/env python3
"""Is what gctrace concludes true? What remedies save in the programs beside this, and what following the advice brings.

    matrix.py [--python NAME=FILE ...] [--repeat 3] [--jobs 1] [--few] [PROGRAM ...]
    matrix.py --gctrace FILE [--mode inject --mode ebpf] [--load N] [--repeat-recording K] [...]

Truth is measured without gctrace: each program runs as it is and with each remedy (programs/progress.py), in turns
(A..Z, Z..A), --repeat times; the least CPU time counts, as load only adds to it. --truth keeps it, one row for each
program, interpreter and remedy; only what it lacks is measured. Printed are what the rules of advice rest on.

With --gctrace each program is recorded in each mode. The remedy of the first advice is looked up in the truth, or
measured. Exit code 1 if a goal is missed:

    the first advice saves 60 % or more of what the best setting saves in 90 % of the programs;
    it loses above 3 %, or leaks, in none; where next to nothing is to gain, the collector is not called a problem;
    both modes give the same first advice in 95 %; "measure it" is all that is advised in at most 10 %;
    with --repeat-recording: 19 of 20 recordings give the same level and first advice.

libgctrace_inject.so must lie beside FILE, in a folder that only root can write if run as root.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading


HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "progress")
FEW = ["bytes_only", "deep_copies", "explicit_library", "json_lines", "request_threads", "train_records"]
# An advice that only says what to run next.
ASKS = ("find-cycles", "measure", "record-collections", "record-reasons")
PROBLEMS = ("heavy", "noticeable")
# Of the CPU time: from where a remedy counts as a gain, as a loss, and a collector as no problem.
GAIN, LOSS, FALSE_ALARM = 0.05, 0.03, 0.02
# Of what the best setting saves.
ENOUGH = 0.6
# Fewer objects freed in a second of CPU time are next to none: docs/evidence.md.
NOTHING = 200
# What is not measured of a program at once is measured when an advice names it.
SETTINGS = ["none", "disable@start", "threshold=7000,10,10", "threshold=50000,10,10", "freeze",
            "threshold=50000,10,10,freeze", "exit-freeze"]
SUMS = "before_ns after_ns explicit_ns own_ns empty_ns full_ns freed collections empty full cpu_ns".split()
COLUMNS = """python program remedy runs cpu_ms spread_ms collector_ms exit_ms own_ms explicit_ms loading_ms empty_ms
full_ms longest_ms collections empty full freed processes rss_mib""".split()


def remedies(program):
    """What is measured of a program."""
    texts = [(PROGRAMS / f"{program}.py").read_text()]
    # What it imports of the others is a part of it.
    imported = [name for name in re.findall(r"^import (\w+)", texts[0], re.M) if name in NAMES]
    texts += [(PROGRAMS / f"{name}.py").read_text() for name in imported]
    text = "\n".join(texts)
    own = [f"fix={name}" for name in dict.fromkeys(re.findall(r'fixed\("(\w+)"\)', text))]
    if "gc.collect(" in text or "cleaner" in text:
        own.append("no-explicit")
    if "multiprocessing" in text or "os.fork(" in text:
        own.append("freeze-forks")
    return SETTINGS + own


def run(python, program, remedy):
    """One run: CPU time of all its processes, and what its collections cost, as it wrote that."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, VERDICT_TRUTH=folder, VERDICT_REMEDY=remedy, PYTHONHASHSEED="0")
        started = subprocess.Popen([python, PROGRAMS / f"{program}.py"], env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            sys.exit(f"{program} with {remedy} failed: exit code {started.returncode}")
        processes = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*.json")]
    sums = {name: sum(one[name] for one in processes) for name in SUMS}
    cpu_ms = (usage.ru_utime + usage.ru_stime) * 1e3
    return {
        "cpu_ms": cpu_ms,
        "collector_ms": (sums["before_ns"] + sums["after_ns"]) / 1e6,
        # From the last atexit function on; what processes do that end without it is in it.
        "exit_ms": cpu_ms - sums["cpu_ns"] / 1e6,
        "loading_ms": sums["before_ns"] / 1e6,
        **{f"{name}_ms": sums[f"{name}_ns"] / 1e6 for name in ("own", "explicit", "empty", "full")},
        "longest_ms": max(one["longest_ns"] for one in processes) / 1e6,
        "rss_mib": max(one["hwm_kib"] for one in processes) / 1024,
        "processes": len(processes),
        **{name: sums[name] for name in ("collections", "empty", "full", "freed")},
    }


def row(python, program, remedy, runs):
    """Of several runs: the least of each time, the median of what is counted."""
    times = {name: min(one[name] for one in runs) for name in runs[0] if name.endswith("_ms")}
    counts = {name: statistics.median_low(one[name] for one in runs) for name in runs[0] if not name.endswith("_ms")}
    spread = statistics.median(one["cpu_ms"] for one in runs) - times["cpu_ms"]
    figures = {name: round(value, 2) for name, value in {**times, **counts, "spread_ms": spread}.items()}
    return {"python": python, "program": program, "remedy": remedy, "runs": len(runs), **figures}


def merged(one, other):
    """Two rows of the same: the least of both."""
    if other is None:
        return one
    times = {name: min(one[name], other[name]) for name in one if name.endswith("_ms")}
    times["spread_ms"] = max(one["spread_ms"], other["spread_ms"], abs(one["cpu_ms"] - other["cpu_ms"]))
    return {**one, **times, "runs": one["runs"] + other["runs"]}


def may_save(remedy, base):
    """Whether a remedy is worth a run: what costs next to nothing leaves nothing to save."""
    least = FALSE_ALARM / 2 * base["cpu_ms"]
    if remedy == "exit-freeze":
        return base["exit_ms"] > least
    return remedy in ("none", "disable@start") or base["collector_ms"] > least


class Truth:
    """What was measured, by interpreter, program and remedy; kept in a file."""

    def __init__(self, file, repeat):
        self.file, self.repeat, self.rows, self.lock = file, repeat, {}, threading.Lock()
        if file.exists():
            with open(file, newline="") as lines:
                for one in csv.DictReader(lines):
                    key = one["python"], one["program"], one["remedy"]
                    self.rows[key] = {**one, **{name: json.loads(one[name]) for name in COLUMNS[3:]}}

    def measure(self, name, python, program, wanted):
        """Runs what was not run --repeat times."""

        def lacks(remedy):
            return self.repeat - int(self.rows.get((name, program, remedy), {"runs": 0})["runs"]) - len(runs[remedy])

        runs = {remedy: [] for remedy in wanted}
        if "none" in runs:
            if lacks("none") > 0:
                runs["none"].append(run(python, program, "none"))
            base = runs["none"][0] if runs["none"] else self.rows[name, program, "none"]
            runs = {remedy: own for remedy, own in runs.items() if may_save(remedy, base)}
        turn = 0
        while missing := [remedy for remedy in runs if lacks(remedy) > 0]:
            for remedy in missing if turn % 2 == 0 else reversed(missing):
                runs[remedy].append(run(python, program, remedy))
            turn += 1
        with self.lock:
            for remedy, own in runs.items():
                if own:
                    key = name, program, remedy
                    self.rows[key] = merged(row(*key, own), self.rows.get(key))
            if any(runs.values()):
                self.write()

    def write(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        whole = self.file.with_suffix(".new")
        with open(whole, "w", newline="") as lines:
            writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows[key] for key in sorted(self.rows))
        whole.replace(self.file)

    def program(self, name, program):
        """remedy: its row."""
        return {key[2]: one for key, one in self.rows.items() if key[:2] == (name, program)}


class Case:
    """A program with an interpreter: what it costs, and what each remedy saves; one that was not measured: nothing."""

    def __init__(self, rows):
        self.rows, self.base = rows, rows["none"]
        self.name = f"{self.base['program']} {self.base['python']}"
        self.cpu_ms = self.base["cpu_ms"]
        self.frees = self.base["freed"] / self.cpu_ms * 1e3
        self.is_explicit = self.base["explicit_ms"] > 0.5 * self.base["collector_ms"]

    def of(self, remedy):
        return self.rows.get(remedy, self.base)

    def share(self, column):
        return self.base[column] / self.cpu_ms

    def cost(self):
        return self.share("collector_ms") + self.share("exit_ms")

    def saved(self, remedy):
        """CPU time of collector and exit that a remedy saves, as a share of the program's: it depends least on load."""
        # What changes the exit alone changes no collection before it.
        parts = ["exit_ms"] if remedy == "exit-freeze" else ["collector_ms", "exit_ms"]
        return sum(self.base[name] - self.of(remedy)[name] for name in parts) / self.cpu_ms

    def of_collector(self, remedy):
        return 1 - self.of(remedy)["collector_ms"] / self.base["collector_ms"] if self.base["collector_ms"] else 0.0

    def shorter(self, remedy):
        """CPU time of the whole program that a remedy saves."""
        return 1 - self.of(remedy)["cpu_ms"] / self.cpu_ms

    def memory(self, remedy):
        return self.of(remedy)["rss_mib"] - self.base["rss_mib"]

    def leaks(self, remedy):
        """Whether a remedy is none, as garbage stays."""
        return self.memory(remedy) > 16 + 0.25 * self.base["rss_mib"]

    def loses(self, remedy):
        noise = max(self.base["spread_ms"], self.of(remedy)["spread_ms"]) / self.cpu_ms
        return -self.saved(remedy) > LOSS or -self.shorter(remedy) > LOSS + noise

    def best(self):
        """The setting that saves most; a change of the program may save more."""
        settings = [one for one in self.rows if not one.startswith("fix=") and not self.leaks(one)]
        return max(settings, key=self.saved)


def percent(value):
    return f"{value:+.0%}"


def table(columns, rows):
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for cells in rows:
        print(f"| {' | '.join(map(str, cells))} |")


SHORT = dict(zip(SETTINGS[1:], ["disable", "7,000", "50,000", "freeze", "50,000 and freeze", "exit-freeze"]))


def decisions(cases):
    """Each program, by what its collections free."""

    def cells(case, remedy):
        memory = case.memory(remedy)
        grows = f", {memory:+.0f} MiB" if abs(memory) >= 4 else ""
        return f"{percent(case.saved(remedy))}{grows}"

    rows = []
    for case in sorted(cases, key=lambda case: case.frees):
        others = [remedy for remedy in case.rows if remedy not in SHORT and remedy != "none"]
        base = case.base
        rows.append([
            case.name, f"{case.cpu_ms:.0f} ms", f"{case.share('collector_ms'):.0%}", f"{case.share('exit_ms'):.0%}",
            f"{case.frees:,.0f}", f"{base['empty']:.0f} of {base['collections']:.0f}",
            *(cells(case, remedy) for remedy in SHORT), "; ".join(f"{one} {cells(case, one)}" for one in others) or "-",
        ])
    table(["program", "CPU", "collector", "exit", "frees/s", "freed nothing", *SHORT.values(), "others"], rows)


def spread_of(values):
    values = sorted(values)
    return f"{percent(values[0])} / {percent(statistics.median(values))} / {percent(values[-1])}" if values else "-"


def groups(cases):
    """What remedies save of the collector's time, by kind of program."""
    counted = [case for case in cases if case.share("collector_ms") > FALSE_ALARM]
    automatic = [case for case in counted if not case.is_explicit]
    kinds = {
        f"frees nothing (< {NOTHING}/s)": [case for case in automatic if case.frees < NOTHING],
        "frees cycles": [case for case in automatic if case.frees >= NOTHING],
        "explicit calls": [case for case in counted if case.is_explicit],
    }
    rows, asked = [], [*list(SHORT)[:5], "no-explicit", "freeze-forks", "fix=clear", "fix=weak", "fix=del"]
    for kind, own in kinds.items():
        for remedy in asked:
            having = [case for case in own if remedy in case.rows]
            if having:
                memory = [case.memory(remedy) for case in having]
                rows.append([
                    kind, SHORT.get(remedy, remedy), len(having),
                    spread_of(case.of_collector(remedy) for case in having),
                    spread_of(case.saved(remedy) for case in having),
                    spread_of(case.shorter(remedy) for case in having),
                    f"{statistics.median(memory):+.0f} / {max(memory):+.0f}",
                    sum(case.loses(remedy) for case in having),
                ])
    of = ["of the collector's time", "of CPU: collector and exit", "of CPU: whole run"]
    table(["kind", "remedy", "programs", *of, "MiB, median / most", "losses"], rows)
    exits = [case for case in cases if case.share("exit_ms") > 0.01]
    saved = [(case.base["exit_ms"] - case.rows["exit-freeze"]["exit_ms"]) / case.base["exit_ms"] for case in exits]
    own = [case.of("freeze")["own_ms"] / case.cpu_ms for case in automatic if "freeze" in case.rows]
    net = [case.of_collector("freeze") + case.of("freeze")["own_ms"] / case.base["collector_ms"] for case in automatic]
    print(f"\nThe collection before a freeze takes {spread_of(own)} of the CPU time; without it, freezing saves")
    print(f"{spread_of(net)} of the collector's time, explicit calls apart.")
    print(f"\nExit of 1 % and more: {len(exits)} programs; exit-freeze saves {spread_of(saved)} of it.")


def ruled(case):
    """What docs/evidence.md has: of the remedies that apply, the one that is likely to save most."""
    collector = case.base["collector_ms"]
    likely = {"none": 0.0, "exit-freeze": 0.7 * case.base["exit_ms"]}
    if case.is_explicit:
        likely["no-explicit"] = 0.9 * case.base["explicit_ms"]
    elif case.frees < NOTHING:
        likely["disable@start"] = collector
    elif fix := next((remedy for remedy in case.rows if remedy.startswith("fix=")), None):
        likely[fix] = 0.7 * collector
    return max(likely, key=likely.get)


def policies(cases):
    """What simple rules would bring, against the best setting of each program."""

    def frees_nothing(then, otherwise):
        return lambda case: then if case.frees < NOTHING and not case.is_explicit else otherwise

    t7, t50, both = "threshold=7000,10,10", "threshold=50000,10,10", "threshold=50000,10,10,freeze"
    rules = {"always 7,000": lambda case: t7, "always 50,000": lambda case: t50, "always both": lambda case: both}
    for name, then in (("disable", "disable@start"), ("50,000", t50), ("both", both)):
        rules[f"{name} where next to nothing is freed, else none"] = frees_nothing(then, "none")
        rules[f"{name} where next to nothing is freed, else 7,000"] = frees_nothing(then, t7)
    rules["the rules"] = ruled
    rows = []
    for name, rule in rules.items():
        chosen = [(case, rule(case)) for case in cases]
        gains = [case.saved(remedy) for case, remedy in chosen]
        worth = [(case, remedy) for case, remedy in chosen if case.saved(case.best()) >= GAIN]
        near = [case for case, remedy in worth if case.saved(remedy) >= ENOUGH * case.saved(case.best())]
        bad = [sum(case.loses(remedy) for case, remedy in chosen), sum(case.leaks(remedy) for case, remedy in chosen)]
        rows.append([name, percent(statistics.mean(gains)), percent(min(gains)), *bad, f"{len(near)} of {len(worth)}"])
    table(["rule", "saves in the mean", "worst", "losses", "leaks", "60 % of the best setting"], rows)


def canonical(settings):
    """The remedy's name here for what `gctrace apply --gc` takes; None if it is not known here."""
    parts = {}
    for part in re.split(r",(?=[a-z])", settings):
        name, _, place = part.partition("@")
        name, _, value = name.partition("=")
        if name == "threshold":
            value = ",".join((value.split(",") + ["10", "10"])[:3])
        elif name not in ("disable", "freeze"):
            return None
        parts[name] = f"{name}={value}" if value else f"{name}@start" if (name, place) == ("disable", "start") else name
    return ",".join(parts[name] for name in ("disable", "threshold", "freeze") if name in parts)


def remedy_of(advice, program):
    """The remedy's name here: none for advice that changes nothing, None for what cannot be measured."""
    known = remedies(program)
    if settings := advice.get("settings"):
        return settings if settings in known else canonical(settings)
    if advice["id"] in ASKS or advice["id"] in ("leave", "no-collection"):
        return "none"
    named = {"explicit-calls": "no-explicit"}.get(advice["id"])
    if named is None and "exit" in advice["id"]:
        named = "exit-freeze"
    if named:
        return named if named in known else None
    # A change of the program: what its text names first, of what the program supports.
    text = f"{advice['action']} {advice.get('code') or ''}".lower()
    words = {"fix=clear": "clear", "fix=weak": "weakref", "fix=del": "del ", "fix=bound": "bound", "fix=cache": "cache"}
    places = {fix: text.find(word) for fix, word in words.items() if fix in known and word in text}
    if places:
        return min(places, key=places.get)
    # What holds the cycle together is cleared or deleted: programs call it the one or the other.
    ends = [fix for fix in ("fix=clear", "fix=del") if fix in known]
    return ends[0] if ends and ("clear" in text or "del " in text) else None


def record(options, pair, mode, folder):
    """The report of one recording."""
    name, python, program = pair
    folder = folder / mode
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / f"{program}.json"
    trace.unlink(missing_ok=True)
    line = [options.gctrace, "record", "-q", "--mode", mode, "-o", trace]
    # Steps are marked in training, where the mode and the interpreter can.
    if mode != "ebpf" and program.startswith("train") and name != "3.11":
        line += ["--step-function", "progress.py:step"]
    environment = dict(os.environ, PYTHONHASHSEED="0")
    line += ["--", python, PROGRAMS / f"{program}.py"]
    subprocess.run(line, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=600)
    report = subprocess.run([options.gctrace, "analyze", "--format", "json", trace], check=True, stdout=subprocess.PIPE)
    return json.loads(report.stdout)


class Followed:
    """A recording whose first advice was followed."""

    def __init__(self, pair, mode, report, truth):
        name, python, program = pair
        advice = report["advice"]
        first = advice[0] if advice else {"id": "leave"}
        self.pair, self.mode, self.level, self.first = pair, mode, report["verdict"]["level"], first["id"]
        self.remedy = remedy_of(first, program) if advice else "none"
        if self.remedy:
            truth.measure(name, python, program, [self.remedy])
        self.case = case = Case(truth.program(name, program))
        best = case.saved(case.best())
        self.saved = case.saved(self.remedy) if self.remedy else 0.0
        faults = {
            "saves too little": best >= GAIN and self.saved < ENOUGH * best,
            "loses": self.remedy is not None and (case.loses(self.remedy) or case.leaks(self.remedy)),
            "asks": bool(advice) and all(one["id"] in ASKS for one in advice),
            "false alarm": self.level in PROBLEMS and case.cost() < FALSE_ALARM,
        }
        self.faults = [fault for fault, found in faults.items() if found]

    def cells(self):
        case, best = self.case, self.case.best()
        return [case.name, self.mode, self.level, self.first, self.remedy or "not measured", f"{case.cost():.0%}",
                percent(self.saved), f"{best} {percent(case.saved(best))}", ", ".join(self.faults) or "-"]


def follow(options, pairs, truth):
    """Records, follows the first advice of each recording, and says which goals are missed."""
    followed = []
    with tempfile.TemporaryDirectory() as folder, load(options.load):
        for pair in pairs:
            for mode in options.mode or ["inject"]:
                for _ in range(options.repeat_recording):
                    report = record(options, pair, mode, options.traces or pathlib.Path(folder))
                    followed.append(Followed(pair, mode, report, truth))
    columns = "program|mode|verdict|first advice|its remedy|cost|saves|best setting|faults".split("|")
    table(columns, [one.cells() for one in followed])
    return goals(followed)


def goals(followed):
    """Whether all are met."""
    by_program, by_series = {}, {}
    for one in followed:
        by_program.setdefault(one.pair, {}).setdefault(one.mode, (one.first, one.remedy))
        by_series.setdefault((one.pair, one.mode), []).append((one.level, one.first))
    both = [set(modes.values()) for modes in by_program.values() if len(modes) > 1]
    series = [one for one in by_series.values() if len(one) > 1]
    odd = sum(len(one) - max(map(one.count, one)) for one in series)
    count = len(followed)
    found = collections.Counter(fault for one in followed for fault in one.faults)
    rows = [
        (f"the first advice saves less than {ENOUGH:.0%} of the best setting", found["saves too little"], count, 0.1),
        ("the first advice loses", found["loses"], count, 0),
        ("both modes give another first advice", sum(len(one) > 1 for one in both), len(both), 0.05),
        ("all advice is what to run next", found["asks"], count, 0.1),
        ("a problem where nothing costs time", found["false alarm"], count, 0),
        ("recordings unlike the others of the same program", odd, sum(map(len, series)), 0.05),
    ]
    # Of few programs, one may be an exception where some may.
    met = [missed <= max(most * of, most > 0) for _, missed, of, most in rows]
    cells = [[name, f"{missed} of {of}", f"{most:.0%}"] for name, missed, of, most in rows]
    cells = [[*own, "met" if held else "**missed**"] for own, held in zip(cells, met)]
    table(["goal", "missed by", "at most", ""], cells)
    return all(met)


@contextlib.contextmanager
def load(count):
    """Busy loops beside the recordings."""
    # They end with who started them.
    loop = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", type=pathlib.Path)
    parser.add_argument("--python", action="append", metavar="NAME=FILE", help="several take turns, program by program")
    parser.add_argument("--all-pythons", action="store_true", help="each program with every interpreter")
    parser.add_argument("--mode", action="append")
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--repeat-recording", type=int, default=1)
    parser.add_argument("--traces", type=pathlib.Path, help="a folder that keeps the last recordings")
    parser.add_argument("--truth", type=pathlib.Path, default=HERE / "truth.csv")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="programs that are measured at the same time")
    parser.add_argument("--few", action="store_true", help="six programs")
    parser.add_argument("programs", nargs="*", default=[])
    options = parser.parse_args()
    own = "{}.{}={}".format(*sys.version_info[:2], sys.executable)
    pythons = [one.partition("=")[::2] for one in options.python or [own]]
    programs = options.programs or (FEW if options.few else NAMES)
    pairs = [
        (name, python, program)
        for place, program in enumerate(programs)
        for name, python in (pythons if options.all_pythons else [pythons[place % len(pythons)]])
    ]
    truth = Truth(options.truth, options.repeat)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        done = [pool.submit(truth.measure, *pair, remedies(pair[2])) for pair in pairs]
        for future in concurrent.futures.as_completed(done):
            future.result()
    if options.gctrace:
        return 0 if follow(options, pairs, truth) else 1
    cases = [Case(truth.program(name, program)) for name, _, program in pairs]
    decisions(cases)
    groups(cases)
    policies(cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
