#!/usr/bin/env python3
"""What `gctrace auto` says that it saved, beside whole runs with and without it.

    scripts/bench/auto.py --gctrace FILE --python FILE [--torch PYTHON] [--simgpu FOLDER] [--pairs 5]
                          [--steps 1.0] [--runs FILE] [PROGRAM...]

Each program of auto_program.py runs in turns (without, with, with, without) and measures itself: CPU time of the
thread that makes the steps, of its collections, and of each hundredth of the run outside of collections. From these:

- difference: of whole runs, with its standard error over the pairs;
- in collections: the part of it that is in gc.callbacks, which the noise of the rest is not in;
- outside: the rest, of each hundredth the least of all runs, without and with, as load only adds to it; its standard
  error is that of the sum of a hundred;
- both: the sum of the last two.

A claim is inside if its 95 % interval contains a difference, and inside with both errors if it is no farther from it
than the root of the squares of half its interval and twice the standard error. A program with nothing to gain must
make no claim. PYTHON is 3.12 or newer (`--step-function`); --torch needs scripts/torch-venv.sh; --steps scales the
number of steps. --runs keeps the figures of each run, one JSON object a line. Nothing else should run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

PROGRAM = pathlib.Path(__file__).with_name("auto_program.py")
NAMED = ["--step-function", "train_step"]
# Steps of 10 to 20 s each on a machine of 2025; whether there is something to gain; how steps are known.
PROGRAMS = {
    "static": (25_000, True, NAMED),
    "growing": (40_000, True, NAMED),
    "trees": (25_000, True, NAMED),
    "records": (40_000, True, NAMED),
    "changes": (30_000, True, NAMED),
    "cycles": (30_000, False, NAMED),
    "numbers": (40_000, False, NAMED),
    # As "static", but no function is named: no step is known.
    "service": (20_000, True, []),
    "web": (150_000, True, []),
    # By its optimizer.
    "torch": (12_000, True, []),
    # Rank 0 decides and claims, rank 1 does the same.
    "simgpu": (25_000, True, NAMED),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--torch", help="a Python with PyTorch; without it, torch is left out")
    parser.add_argument("--simgpu", help="folder of the simulated GPU's libraries; without it, simgpu is left out")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=float, default=1.0)
    parser.add_argument("--runs", type=argparse.FileType("a"), default=os.devnull)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=[])
    options = parser.parse_args()
    print("| program | without | with | difference | in collections | outside | said, mean of the runs | inside: difference,"
          " in collections, both | with both errors | gctrace itself |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.programs or PROGRAMS:
        if name in ("torch", "simgpu") and not getattr(options, name):
            print(f"| {name}: left out, --{name} is not given |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            measure(pathlib.Path(folder), name, options)


def measure(folder, name, options):
    runs = {False: [], True: []}
    for pair in range(options.pairs):
        for with_auto in (False, True) if pair % 2 == 0 else (True, False):
            found = run(folder, name, with_auto, options)
            runs[with_auto].append(found)
            print(json.dumps({"program": name, "with": with_auto, **found}), file=options.runs, flush=True)
    saved = [found["saved_s"] for found in runs[True]]
    show(name, runs, saved)
    if name == "simgpu":
        show(f"{name}, rank 1", {side: [found["rank_1"] for found in found_all] for side, found_all in runs.items()}, [])


def show(name, runs, saved):
    claims = [claim for claim in saved if claim]
    without, with_auto = (runs[side] for side in (False, True))
    whole, collecting = (paired(without, with_auto, key) for key in ("cpu_s", "collecting_s"))
    outside = least(without, with_auto)
    both = collecting[0] + outside[0], (collecting[1] ** 2 + outside[1] ** 2) ** 0.5
    truths = whole, collecting, both
    inside = [sum(low <= truth <= high for _, low, high in claims) for truth, _ in truths]
    near = [sum(is_near(claim, truth) for claim in claims) for truth in truths]
    said = ""
    if saved:
        said = "no claim" if not claims else "{:.2f} ({:.2f} .. {:.2f})".format(*map(statistics.mean, zip(*claims)))
        said += f" in {len(claims)} of {len(saved)}"
        name += "" if PROGRAMS[name][1] else " (nothing to gain)"
    mean = [statistics.mean(found["cpu_s"] for found in side) for side in (without, with_auto)]
    more = [found["command_s"] for found in with_auto if "command_s" in found]
    of = f" of {len(claims)}" if claims else ""
    print(f"| {name} | {mean[0]:.2f} s | {mean[1]:.2f} s | {figure(whole)} s | {figure(collecting)} s | {figure(outside)} s"
          f" | {said} | {', '.join(map(str, inside)) + of if claims else ''}"
          f" | {', '.join(map(str, near)) + of if claims else ''} |"
          f" {f'{statistics.mean(more):.2f} s' if more else ''} |", flush=True)


def figure(measured):
    return "{:.2f} ± {:.2f}".format(*measured)


def is_near(claim, truth):
    mean, low, high = claim
    half = high - mean if truth[0] > mean else mean - low
    return abs(truth[0] - mean) <= (half**2 + (2 * truth[1]) ** 2) ** 0.5


def paired(without, with_auto, key):
    """The mean difference with its standard error, in s."""
    differences = [one[key] - other[key] for one, other in zip(without, with_auto)]
    return statistics.mean(differences), error_of(differences)


def error_of(values):
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def least(without, with_auto):
    """The difference outside of collections with its standard error, in s: of each part the least of all runs."""
    sides = [[min(parts) for parts in zip(*(found["parts_s"] for found in side))] for side in (without, with_auto)]
    differences = [one - other for one, other in zip(*sides)]
    return sum(differences), error_of(differences) * len(differences)


def run(folder, name, with_auto, options):
    """What the program measured, what the command took beside it, and what was saved: (mean, low, high) in s;
    None: no claim."""
    out, report = folder / "truth", folder / "auto.json"
    steps, _, how = PROGRAMS[name]
    python = options.torch if name == "torch" else options.python
    command = [os.path.abspath(python), PROGRAM, name, str(round(steps * options.steps)), out]
    environment = dict(os.environ)
    if name == "simgpu":
        command.append(os.path.abspath(options.simgpu))
        environment["LD_LIBRARY_PATH"] = os.path.abspath(options.simgpu)
    if with_auto:
        own = [os.path.abspath(options.gctrace), "auto", "-q", "--force", "--wait", "1s", "-o", report]
        command = [*own, *how, "--", *command]
    before = os.times()
    subprocess.run(command, cwd=folder, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = os.times()
    command_s = after.children_user + after.children_system - before.children_user - before.children_system
    found = json.loads(out.read_text())
    if name == "simgpu":
        found["rank_1"] = json.loads(out.with_name("truth.1").read_text())
    elif with_auto:
        found["command_s"] = command_s - found["cpu_s"]
    found["saved_s"] = None
    if with_auto:
        found["processes"] = json.loads(report.read_text())["processes"]
        saved = [process["saved"] for process in found["processes"] if process["saved"]]
        if saved:
            found["saved_s"] = tuple(saved[0][key] / 1e9 for key in ("mean_ns", "low_ns", "high_ns"))
    return found


if __name__ == "__main__":
    main()
