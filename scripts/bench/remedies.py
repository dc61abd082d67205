#!/usr/bin/env python3
"""Does each remedy save what was predicted? Applies it to the program it was priced for, and measures.

    remedies.py --gctrace FILE [--python FILE] [--torch PYTHON] [--simgpu LIBRARY] [--mode inject] [--repeat 3]
                [--out FOLDER] [PROGRAM...]

Each program is recorded, then run again with each remedy that the report prices, advised or not, applied by
tests/verdict/apply.py where the advice says, and without any. Compared is the collector's CPU time in the
training phase, from its first whole step on: the least of --repeat runs, in turns, as load only adds to it. The pauses
of the recording get their CPU time for their length, so that other programs on the machine change neither side;
predicted ranges are scaled by the least of the runs without a remedy over the recorded one. An interval in seconds is
applied as the same share of the training steps. On the simulated GPU (--simgpu, libgctrace_simgpu.so) the time that
training takes is compared, on wall clocks.

libgctrace_inject.so must lie beside FILE, in a folder that only root can write if run as root.
"""

import argparse
import bisect
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = HERE / "tests/verdict/programs"
OWN = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem not in ("launcher", "pool", "progress", "ranks", "short"))


def command(options, name):
    """Python, marking options, program and arguments."""
    if name == "train":
        return options.python, ["--mark", "random:Random.sample"], HERE / "examples/train.py", []
    if name == "train_torch":
        arguments = ["--steps", "40", "--workers", "0"]
        return options.torch, ["--mark", "torch:Tensor.backward"], HERE / "examples/train_torch.py", arguments
    if name == "train_simgpu":
        arguments = ["--library", options.out / "simgpu", "--steps", "500"]
        return options.python, ["--mark", "random:Random.choice"], HERE / "examples/train_simgpu.py", arguments
    return options.python, [], PROGRAMS / f"{name}.py", []


def lay_out(options):
    """The simulated GPU under the names of NVIDIA's libraries."""
    folder = options.out / "simgpu"
    folder.mkdir(exist_ok=True)
    for name in ("libcuda.so.1", "libcudart.so.12", "libcupti.so.12", "libnccl.so.2", "libnvidia-ml.so.1"):
        shutil.copy(options.simgpu, folder / name)


def run(options, name, log, remedy=(), trace=None):
    python, mark, program, arguments = command(options, name)
    line = [python, PROGRAMS.parent / "apply.py", "--log", log, *mark, *remedy, program, *arguments]
    environment = dict(os.environ)
    if name == "train_simgpu":
        folder = str(options.out / "simgpu")
        environment |= {"LD_LIBRARY_PATH": folder, "GCTRACE_NVML": f"{folder}/libnvidia-ml.so.1"}
    if trace:
        trace.unlink(missing_ok=True)
        mode = "auto" if name == "train_simgpu" else options.mode
        line = [options.gctrace, "record", "-q", "--mode", mode, "-o", trace, "--", *line]
    done = subprocess.run(
        [str(part) for part in line], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    result = json.loads(log.read_text())
    took = re.search(r"steps in ([0-9.]+) s", done.stdout) if name == "train_simgpu" else None
    result["took_ms"] = float(took[1]) * 1e3 if took else None
    return result


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
                event["args"]["cpu_ns"] = round(event["dur"] * 1000)
    path.write_text(json.dumps(document))
    return next(event["ts"] * 1000 for event in document["traceEvents"] if event["name"] == "gctrace_header")


def cost_ms(log, since):
    """What is compared: the time of training on the simulated GPU, else CPU time of the collector."""
    if log["took_ms"] is not None:
        return log["took_ms"]
    return sum(own[2] for own in log["collections"] if own[0] >= since) / 1e6


def remedies(report, since):
    """Name, options of apply.py and range in ms of each remedy that has a price."""
    advised = len(report["advice"])
    for place, advice in enumerate([*report["advice"], *report["not_advised"]]):
        settings = advice["settings"]
        if not settings and advice["id"] != "explicit-calls":
            continue
        limits = [advice[name] for name in ("saves_at_least_ns", "saves_likely_ns", "saves_at_most_ns")]
        limits = [limit / 1e6 if limit is not None else None for limit in limits]
        at = ["--at", str(since)]
        if advice["id"] == "explicit-calls":
            name, remedy = "no explicit calls", ["--no-explicit", *at]
        elif settings["thresholds"]:
            thresholds = ",".join(map(str, settings["thresholds"]))
            name, remedy = f"threshold {thresholds}", ["--threshold", thresholds]
        elif settings["freeze"]:
            name, remedy = "freeze", ["--freeze", *at]
        elif settings["collect_every_steps"]:
            every = settings["collect_every_steps"]
            name, remedy = f"collect every {every} steps", ["--every-steps", str(every), *at]
        else:
            continue
        yield name, "yes" if place < advised else "no", remedy, limits


def measure(options, name):
    folder = options.out
    trace, quiet = folder / f"{name}.json", folder / f"{name}.cpu.json"
    recorded = run(options, name, folder / f"{name}.log", trace=trace)
    started_ns = with_cpu_times(trace, recorded, quiet)
    analyzed = subprocess.run(
        [options.gctrace, "analyze", "--format", "json", trace if recorded["took_ms"] is not None else quiet],
        capture_output=True,
        check=True,
        text=True,
    )
    report = json.loads(analyzed.stdout)
    (folder / f"{name}.report.json").write_text(analyzed.stdout)
    training_ns = started_ns + (report["phases"]["training"]["after_start_ns"] if report["phases"] else 0)
    since = bisect.bisect(recorded["steps"], training_ns) + 1  # the first whole step
    tried = list(remedies(report, since))
    without, applied = [], {label: [] for label, *_ in tried}
    for turn in range(options.repeat):
        without.append(run(options, name, folder / f"{name}.none.log"))
        for label, _, remedy, _ in tried:
            applied[label].append(run(options, name, folder / f"{name}.remedy.log", remedy))
    before = min(cost_ms(log, since) for log in without)
    scale = before / cost_ms(recorded, since) if cost_ms(recorded, since) else 1.0
    for label, advised, _, (least, likely, most) in tried:
        saved = before - min(cost_ms(log, since) for log in applied[label])
        memory = [statistics.median(log["max_rss_kb"] for log in own) / 1024 for own in (without, applied[label])]
        rounding = 0.005 * before
        inside = saved <= most * scale + rounding and (least is None or saved >= least * scale - rounding)
        limits = [f"{limit * scale:.0f}" if limit is not None else "-" for limit in (least, likely, most)]
        cells = [name, label, advised, f"{before:.0f}", " .. ".join(limits), f"{saved:.0f}"]
        cells.append(f"{memory[1] - memory[0]:+.0f}")
        print(f"| {' | '.join(cells)} | {'yes' if inside else '**no**'} |", flush=True)
        yield inside
    if not tried:
        print(f"| {name} | nothing to price | - | {before:.0f} | - | - | - | - |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch", help="a Python with PyTorch; without it, train_torch is left out")
    parser.add_argument("--simgpu", type=pathlib.Path, help="libgctrace_simgpu.so; without it, train_simgpu is left out")
    parser.add_argument("--mode", default="inject", help="how to record (default: inject)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/gctrace-remedies"))
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.simgpu:
        lay_out(options)
    examples = ["train", *(["train_torch"] if options.torch else []), *(["train_simgpu"] if options.simgpu else [])]
    programs = options.programs or [*OWN, *examples]
    print("| program | remedy | advised | without, ms | predicted saving, ms | measured, ms | max RSS, MB | inside |")
    print("|---|---|---|---|---|---|---|---|")
    inside = [result for name in programs for result in measure(options, name)]
    print(f"\n{sum(inside)} of {len(inside)} inside")


if __name__ == "__main__":
    main()
