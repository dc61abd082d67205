#!/usr/bin/env python3
"""Does the advice save what it says? Applies each advice to the program it was given for, and measures.

    remedies.py --gctrace FILE [--python FILE] [--torch PYTHON] [--repeat 3] [--out FOLDER] [PROGRAM...]

Each program is recorded in-process, then run again with each remedy that the report advises, applied by
tests/python/remedies/apply.py where the advice says, and without any. Compared is the collector's CPU time in the
training phase, from its first whole step on: the least of --repeat runs, in turns, as load only adds to it. The pauses
of the recording get their CPU time for their length, so that other programs on the machine change neither side;
predicted ranges are scaled by the least of the runs without a remedy over the recorded one. An interval in seconds is applied as the same share of the training steps. Where nothing
is advised, a tenfold threshold is applied: it has to save less than 1 % of the training time.

libgctrace_inject.so must lie beside FILE, in a folder that only root can write if run as root.
"""

import argparse
import bisect
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = HERE / "tests/python/remedies"
OWN = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem not in ("apply", "progress"))


def command(options, name):
    """Python, marking options, program and arguments."""
    if name == "train":
        return options.python, ["--mark", "random:Random.sample"], HERE / "examples/train.py", []
    if name == "train_torch":
        arguments = ["--steps", "40", "--workers", "0"]
        return options.torch, ["--mark", "torch:Tensor.backward"], HERE / "examples/train_torch.py", arguments
    return options.python, [], PROGRAMS / f"{name}.py", []


def run(options, name, log, remedy=(), trace=None):
    python, mark, program, arguments = command(options, name)
    line = [python, PROGRAMS / "apply.py", "--log", log, *mark, *remedy, program, *arguments]
    if trace:
        trace.unlink(missing_ok=True)
        line = [options.gctrace, "record", "-q", "--mode", "inject", "-o", trace, "--", *line]
    subprocess.run([str(part) for part in line], stdout=subprocess.DEVNULL, check=True)
    return json.loads(log.read_text())


def with_cpu_times(trace, log, path):
    """The trace with the CPU time of each collection as its length."""
    starts = [collection[3] for collection in log["collections"]]
    document = json.loads(trace.read_text())
    for event in document["traceEvents"]:
        if event.get("ph") == "X" and event["name"].startswith("gc gen"):
            at_ns = event["ts"] * 1000
            place = bisect.bisect(starts, at_ns)
            near = [own for own in log["collections"][max(0, place - 2) : place + 2] if own[1] == event["args"]["generation"]]
            closest = min(near, key=lambda own: abs(own[3] - at_ns), default=None)
            if closest and abs(closest[3] - at_ns) < 2e6:
                event["dur"] = min(event["dur"], closest[2] / 1000)
    path.write_text(json.dumps(document))
    return next(event["ts"] * 1000 for event in document["traceEvents"] if event["name"] == "gctrace_header")


def cost_ms(log, since):
    return sum(own[2] for own in log["collections"] if own[0] >= since) / 1e6


def remedies(report, since, steps):
    """Name, options of apply.py and range in ms of each advice."""
    training_ns = report["phases"]["training"]["duration_ns"] if report["phases"] else 0
    for advice in report["advice"]:
        settings = advice["settings"]
        if not settings:
            continue
        limits = [advice[name] / 1e6 for name in ("saves_at_least_ns", "saves_likely_ns", "saves_at_most_ns")]
        at = ["--at", str(since)]
        if settings["thresholds"]:
            name = ",".join(map(str, settings["thresholds"]))
            yield f"threshold {name}", ["--threshold", name], limits
        elif settings["freeze"]:
            yield "freeze", ["--freeze", *at], limits
        elif settings["disable"]:
            every = settings["collect_every_steps"] or round((steps - since) * settings["collect_every_ns"] / training_ns)
            yield f"collect every {every} steps", ["--every-steps", str(max(1, every)), *at], limits
        elif advice["id"] == "explicit-calls":
            yield "no explicit calls", ["--no-explicit", *at], limits
    if not any(advice["settings"] for advice in report["advice"]):
        yield "nothing to change", ["--threshold", "7000,10,10"], [None, 0, training_ns / 1e8]


def measure(options, name):
    folder = options.out
    trace, quiet = folder / f"{name}.json", folder / f"{name}.cpu.json"
    recorded = run(options, name, folder / f"{name}.log", trace=trace)
    started_ns = with_cpu_times(trace, recorded, quiet)
    analyzed = subprocess.run(
        [options.gctrace, "analyze", "--format", "json", quiet], capture_output=True, check=True, text=True
    )
    report = json.loads(analyzed.stdout)
    (folder / f"{name}.report.json").write_text(analyzed.stdout)
    steps = len(recorded["steps"])
    training_ns = started_ns + (report["phases"]["training"]["after_start_ns"] if report["phases"] else 0)
    since = bisect.bisect(recorded["steps"], training_ns) + 1  # the first whole step
    tried = list(remedies(report, since, steps))
    without, applied = [], {label: [] for label, _, _ in tried}
    for turn in range(options.repeat):
        without.append(run(options, name, folder / f"{name}.none.log"))
        for label, remedy, _ in tried:
            applied[label].append(run(options, name, folder / f"{name}.remedy.log", remedy))
    before = min(cost_ms(log, since) for log in without)
    scale = before / cost_ms(recorded, since) if cost_ms(recorded, since) else 1.0
    for label, _, (least, likely, most) in tried:
        saved = before - min(cost_ms(log, since) for log in applied[label])
        memory = [statistics.median(log["max_rss_kb"] for log in own) / 1024 for own in (without, applied[label])]
        rounding = 0.005 * before
        inside = saved <= most * scale + rounding and (least is None or saved >= least * scale - rounding)
        limits = [f"{limit * scale:.0f}" if limit is not None else "-" for limit in (least, likely, most)]
        cells = [name, label, f"{before:.0f}", " .. ".join(limits), f"{saved:.0f}", f"{memory[1] - memory[0]:+.0f}"]
        print(f"| {' | '.join(cells)} | {'yes' if inside else '**no**'} |", flush=True)
        yield inside


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch", help="a Python with PyTorch; without it, train_torch is left out")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/gctrace-remedies"))
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    programs = options.programs or [*OWN, "train", *(["train_torch"] if options.torch else [])]
    print("| program | remedy | GC without, ms | predicted saving, ms | measured, ms | max RSS, MB | inside |")
    print("|---|---|---|---|---|---|---|")
    inside = [result for name in programs for result in measure(options, name)]
    print(f"\n{sum(inside)} of {len(inside)} inside")


if __name__ == "__main__":
    main()
