#!/usr/bin/env python3
"""Is what gctrace concludes true? Every program: verdict and advice against runs with the remedies applied.

    matrix.py --gctrace FILE [--python NAME=FILE ...] [--mode inject] [--mode ebpf] [--repeat 3] [--out FOLDER]
              [--reuse] [PROGRAM ...]

Truth is measured without gctrace: each program of programs/ runs as it is and with each remedy (programs/progress.py),
in turns, --repeat times; the least CPU time of its processes counts, as load only adds to it. Then it is recorded in
each mode and analyzed. Faults, of which none is wanted:

    false alarm   "is a problem" where a run without any automatic collection saves less than 2 %
    missed        a remedy saves 5 % or more, and the screen neither numbers a change nor says how to find one
    sign          an advised remedy makes the run longer, beyond the spread of the repeats
    range         an advised remedy saves less or more than its range, beyond the spread (collector's CPU time)

--reuse takes traces and measurements that --out has, so that another build of the analysis is judged by the same runs.

libgctrace_inject.so must lie beside FILE, in a folder that only root can write if run as root.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "progress")
# Of a program's run, in CPU time.
FALSE_ALARM, MISSED, LOSS = 0.02, 0.05, 0.01
# What most of these programs do is allocate; the thresholds are those that gctrace advises.
REMEDIES = ["none", "off", "threshold=7000,10,10", "threshold=20000,10,10", "freeze", "loading", "no-explicit"]
PROBLEMS = ("heavy", "noticeable")


def run(python, program, remedy):
    """CPU seconds of all processes of one run, and what the collector cost in each, as they wrote it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, VERDICT_TRUTH=folder, VERDICT_REMEDY=remedy, PYTHONHASHSEED="0")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, PROGRAMS / f"{program}.py"], check=True, env=environment, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        processes = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*.json")]
    return {
        "cpu_s": cpu_s,
        "collector_s": sum(one["before"][0] + one["after"][0] for one in processes) / 1e9,
        "loading_s": sum(one["before"][0] for one in processes) / 1e9,
        "longest_ms": max((one["longest_ns"] for one in processes), default=0) / 1e6,
        "steps": max((one["steps"] for one in processes), default=0),
    }


def measure(python, program, remedies, repeat, file, reuse):
    """remedy: the runs with it, which `file` keeps. The program as it is runs again with remedies that are new."""
    runs = json.loads(file.read_text()) if reuse and file.exists() else {}
    missing = [remedy for remedy in remedies if len(runs.get(remedy, [])) < repeat]
    if missing and "none" not in missing:
        missing.insert(0, "none")
    for turn in range(repeat):
        for remedy in missing if turn % 2 == 0 else reversed(missing):
            runs.setdefault(remedy, []).append(run(python, program, remedy))
    file.write_text(json.dumps(runs))
    return runs


def least(runs, figure):
    return min(one[figure] for one in runs)


def median(values):
    """Of some values, the upper one of two; NaN without any."""
    return sorted(values)[len(values) // 2] if values else float("nan")


def spread(runs, figure):
    """How far the middle of the repeats is from the least."""
    values = [one[figure] for one in runs]
    return median(values) - min(values)


def record(gctrace, python, program, mode, folder, reuse):
    """The report, and the first screen."""
    trace = folder / f"{program}.json"
    if not (reuse and trace.exists()):
        trace.unlink(missing_ok=True)
        environment = dict(os.environ, PYTHONHASHSEED="0")
        line = [gctrace, "record", "-q", "--mode", mode, "-o", trace, "--", python, PROGRAMS / f"{program}.py"]
        subprocess.run(line, check=True, env=environment, stdout=subprocess.DEVNULL)
    analyze = [gctrace, "analyze", trace]
    report = subprocess.run([*analyze, "--json"], check=True, stdout=subprocess.PIPE)
    screen = subprocess.run(analyze, check=True, stdout=subprocess.PIPE, universal_newlines=True)
    return json.loads(report.stdout), screen.stdout


def remedy_of(advice):
    """The remedy's name here, None for what needs a change of the program."""
    settings = advice["settings"]
    named = {"explicit-calls": "no-explicit", "off-while-loading": "loading", "freeze-before-fork": "freeze"}
    if advice["id"] in named:
        return named[advice["id"]]
    if not settings:
        return None
    if settings["thresholds"]:
        return "threshold=" + ",".join(map(str, settings["thresholds"]))
    if settings["freeze"]:
        return "freeze"
    if settings["disable"] and settings["collect_every_steps"]:
        return f"plan={settings['collect_every_steps']}"
    return "off" if settings["disable"] else None


def judge(report, screen, truth):
    """Faults of one recording, as lines."""
    base = truth["none"]
    cpu_s, noise_s = least(base, "cpu_s"), spread(base, "cpu_s")
    gains = {name: (cpu_s - least(runs, "cpu_s")) / cpu_s for name, runs in truth.items() if name != "none"}
    level = report["verdict"]["level"]
    advised = [(remedy_of(one), one) for one in report["advice"]]
    collector_s = least(base, "collector_s")
    # Where the program makes garbage, a run without the collector may well be longer: what counts is its share.
    if level in PROBLEMS and max(*gains.values(), collector_s / cpu_s) < FALSE_ALARM:
        yield f"false alarm: {level}, but collections take {collector_s / cpu_s:.1%} and no remedy saves more"
    best = max(gains, key=gains.get)
    # Without a setting to name, the screen may name the cycles, or tune, which finds one.
    pointed = any(word in screen for word in ("gctrace tune", "--garbage cycles", "Record a longer run"))
    if gains[best] >= MISSED and not advised and not pointed:
        yield f"missed: {best} saves {gains[best]:.1%}; {level}"
    for remedy, advice in advised:
        if remedy not in truth:
            continue
        noise = max(noise_s, spread(truth[remedy], "cpu_s")) / cpu_s
        if gains[remedy] < -max(LOSS, noise):
            yield f"sign: {remedy} costs {-gains[remedy]:.1%}"
        priced = against(report, advice, truth)
        if priced and not priced["held"]:
            yield f"range: {remedy} {priced['low_s']:.3f} .. {priced['high_s']:.3f} s, measured {priced['saved_s']:.3f} s"


def against(report, advice, truth):
    """What an advice predicts and what it saved, in CPU seconds of the collector; None if either is unknown."""
    remedy, phases = remedy_of(advice), report["phases"]
    ends = [advice["saves_at_least_ns"], advice["saves_likely_ns"], advice["saves_at_most_ns"]]
    if remedy not in truth or phases is None or None in ends:
        return None
    # What is predicted is of one process, without its exit, and counts as of all that are like it.
    paused_s = (phases["start_up"]["paused_ns"] + phases["training"]["paused_ns"]) / 1e9
    base, runs = truth["none"], truth[remedy]
    collector_s = least(base, "collector_s")
    if not paused_s or not collector_s:
        return None
    low_s, likely_s, high_s = (end / 1e9 * collector_s / paused_s for end in ends)
    # What is off while loading saves there is predicted, without what freezing saves later.
    figure = "loading_s" if remedy == "loading" else "collector_s"
    saved_s = least(base, figure) - least(runs, figure)
    slack_s = max(spread(runs, figure), spread(base, figure), 0.005 * collector_s)
    return {
        "remedy": remedy,
        "low_s": low_s,
        "likely_s": likely_s,
        "high_s": high_s,
        "saved_s": saved_s,
        "collector_s": collector_s,
        "held": low_s - slack_s <= saved_s <= high_s + slack_s,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--python", action="append", metavar="NAME=FILE")
    parser.add_argument("--mode", action="append")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "gctrace-verdict")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("programs", nargs="*", default=[])
    options = parser.parse_args()
    faults = recordings = 0
    print("| program | python | mode | verdict | advised | collector | best measured | fault |\n|" + "---|" * 8)
    for named in options.python or [f"{sys.version_info[0]}.{sys.version_info[1]}={sys.executable}"]:
        name, _, python = named.partition("=")
        for program in options.programs or NAMES:
            reports = {}
            for mode in options.mode or ["inject"]:
                folder = options.out / name / mode
                folder.mkdir(parents=True, exist_ok=True)
                reports[mode] = record(options.gctrace, python, program, mode, folder, options.reuse)
                (folder / f"{program}.txt").write_text(reports[mode][1])
            advised = {remedy_of(one) for report, _ in reports.values() for one in report["advice"]}
            remedies = list(dict.fromkeys([*REMEDIES, *sorted(one for one in advised if one)]))
            file = options.out / name / f"{program}.truth.json"
            truth = measure(python, program, remedies, options.repeat, file, options.reuse)
            base = truth["none"]
            cpu_s = least(base, "cpu_s")
            gain = {one: (cpu_s - least(runs, "cpu_s")) / cpu_s for one, runs in truth.items() if one != "none"}
            best = max(gain, key=gain.get)
            for mode, (report, screen) in reports.items():
                found = list(judge(report, screen, truth))
                recordings += 1
                faults += bool(found)
                cells = [program, name, mode, report["verdict"]["level"]]
                cells.append(", ".join(str(remedy_of(one) or one["id"]) for one in report["advice"]) or "-")
                cells.append(f"{least(base, 'collector_s'):.2f} of {cpu_s:.2f} s, {least(base, 'loading_s'):.2f} loading")
                cells.append(f"{best} {gain[best]:.0%}")
                print(f"| {' | '.join(cells)} | {'; '.join(found) or '-'} |", flush=True)
            # Probes cannot distinguish finalizers from collections, and must report it.
            told = [report for report, _ in reports.values() if "Probes cannot distinguish" not in report["verdict"]["sentence"]]
            levels = {report["verdict"]["level"] for report in told}
            if len(levels) > 1:
                faults += 1
                print(f"| {program} | {name} | all | modes differ: {', '.join(sorted(levels))} | | | | differs |", flush=True)
    print(f"\n{recordings} recordings, {faults} with a fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
