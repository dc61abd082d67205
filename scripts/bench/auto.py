#!/usr/bin/env python3
"""What `gctrace auto` says that it saved, beside whole runs with and without it.

    scripts/bench/auto.py --gctrace FILE --python FILE [--pairs 5] [--steps 1.0] [PROGRAM...]

Each program runs in turns (without, with, with, without): its own CPU time with and without, the
difference with its standard error over the pairs, what the runs with it said, and the runs whose interval
contains that difference; then the same of the CPU time in collections, which the program measures itself in
gc.callbacks and which the noise of the rest is not in. A program with nothing to gain must make no claim. PYTHON is 3.12
or newer (`--step-function`); --steps scales the number of steps. Nothing else should run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

PROGRAM = """
import collections, gc, json, os, random, sys, time
kind, steps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def numbers(turns=3000):
    x = 0
    for i in range(turns):
        x += i * i % 7
    return x

def cycles(count):
    for i in range(count):
        a = []
        b = [a]
        a.append(b)

collecting = [0.0, 0.0]

def measured(phase, info):
    if phase == "start":
        collecting[1] = time.thread_time()
    else:
        collecting[0] += time.thread_time() - collecting[1]

gc.callbacks.append(measured)
kept, window = [], collections.deque(maxlen=40_000)
if kind in ("static", "changes", "service"):
    kept.append([[i, [i]] for i in range(330_000)])

class Node:
    def __init__(self, value):
        self.value, self.left, self.right = value, None, None

def tree(depth):
    node = Node(depth)
    if depth:
        node.left, node.right = tree(depth - 1), tree(depth - 1)
    return node

text = json.dumps([{"id": i, "tags": [str(i), {"n": i}], "name": f"name {i}"} for i in range(60)])
cache = collections.OrderedDict()

def step(i):
    if kind in ("static", "service") or kind == "changes" and i > steps // 2:
        numbers()
        window.extend([i] for i in range(200))
        cycles(50)
    elif kind == "growing":
        numbers()
        kept.extend([i] for i in range(40))
    elif kind == "cycles":
        numbers()
        cycles(300)
    elif kind == "trees":
        cache[i] = tree(7)
        if len(cache) > 1_500:
            cache.popitem(last=False)
    elif kind == "records":
        records = json.loads(text)
        cache[i % 5_000] = [r for r in records if r["id"] % 7 == i % 7]
        numbers(1_000)
    else:
        numbers()

def train_step(i):
    step(i)

run = step if kind == "service" else train_step
for i in range(steps):
    run(i)
with open(out, "w") as file:
    file.write(f"{time.process_time()} {collecting[0]}")
"""
# Steps of 10 to 20 s each on a machine of 2025; whether there is something to gain.
PROGRAMS = {
    "static": (25_000, True),
    "growing": (40_000, True),
    "trees": (25_000, True),
    "records": (40_000, True),
    "changes": (30_000, True),
    "cycles": (30_000, False),
    "numbers": (40_000, False),
    # As "static", but no function is named: no step is known.
    "service": (20_000, True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=float, default=1.0)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=[])
    options = parser.parse_args()
    print("| program | without | with | difference | said, mean of the runs | inside | in collections | inside | command of gctrace |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.programs or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            measure(pathlib.Path(folder), name, options)


def measure(folder, name, options):
    (folder / "program.py").write_text(PROGRAM)
    steps, gains = PROGRAMS[name]
    steps = str(round(steps * options.steps))
    sides, collecting, savings, more = ([], []), ([], []), [], []
    for pair in range(options.pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        for with_auto in order:
            cpu_s, collecting_s, command_s, found = run(folder, name, steps, with_auto, options)
            sides[with_auto].append(cpu_s)
            collecting[with_auto].append(collecting_s)
            if with_auto:
                more.append(command_s - cpu_s)
                savings.append(found)
    claims = [saving for saving in savings if saving]
    (mean_s, error_s, inside), (mean_gc_s, error_gc_s, inside_gc) = (
        compared(both, claims) for both in (sides, collecting)
    )
    said = "no claim"
    if claims:
        mean, low, high = (statistics.mean(column) for column in zip(*claims))
        said = f"{mean:.2f} ({low:.2f} .. {high:.2f})"
    kind = "" if gains else " (nothing to gain)"
    print(
        f"| {name}{kind} | {statistics.mean(sides[False]):.2f} s | {statistics.mean(sides[True]):.2f} s |"
        f" {mean_s:.2f} ± {error_s:.2f} s | {said} in {len(claims)} of {len(savings)} |"
        f" {inside} of {len(claims)} | {mean_gc_s:.2f} ± {error_gc_s:.2f} s | {inside_gc} of {len(claims)} |"
        f" {statistics.mean(more):.2f} s |",
        flush=True,
    )


def compared(sides, claims):
    """The mean difference of both sides with its standard error, in s, and how many claims contain it."""
    differences = [without - with_auto for without, with_auto in zip(*sides)]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
    mean = statistics.mean(differences)
    return mean, error, sum(low <= mean <= high for _, low, high in claims)


def run(folder, name, steps, with_auto, options):
    """CPU time in s of the program by itself, of its collections and of the command, and what was saved:
    (mean, low, high) in s; None: no claim."""
    out, report = folder / "cpu", folder / "auto.json"
    command = [options.python, "program.py", name, steps, str(out)]
    if with_auto:
        own = [os.path.abspath(options.gctrace), "auto", "-q", "--force", "--wait", "1s", "-o", str(report)]
        command = [*own, "--step-function", "train_step", "--", *command]
    before = os.times()
    subprocess.run(command, cwd=folder, check=True)
    after = os.times()
    command_s = after.children_user + after.children_system - before.children_user - before.children_system
    found = None
    if with_auto:
        saved = [process["saved"] for process in json.loads(report.read_text())["processes"]]
        saved = [one for one in saved if one]
        if saved:
            found = tuple(saved[0][key] / 1e9 for key in ("mean_ns", "low_ns", "high_ns"))
    cpu_s, collecting_s = map(float, out.read_text().split())
    return cpu_s, collecting_s, command_s, found


if __name__ == "__main__":
    main()
