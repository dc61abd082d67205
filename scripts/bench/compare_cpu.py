#!/usr/bin/env python3
"""Whether `gctrace compare` finds a program that works a little less per step, next to others.

    scripts/bench/compare_cpu.py --gctrace FILE --python FILE [--runs 5] [--less 3] [--steps 200]

Records the program RUNS times with and without LESS percent of its work, in turns, while a process per CPU
is busy all the time, and prints the comparison. PYTHON is 3.12 or newer (`--step-function`).
"""

import argparse
import os
import pathlib
import subprocess
import tempfile

PROGRAM = """
import os
steps, turns = int(os.environ["STEPS"]), int(os.environ["TURNS"])
def step():
    total = 0
    for turn in range(turns):
        total += turn * turn
    return total
for _ in range(steps):
    step()
"""
TURNS = 200_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--less", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    gctrace = os.path.abspath(options.gctrace)
    others = []
    for _ in range(os.cpu_count()):
        pid = os.fork()
        if pid == 0:
            while True:
                pass
        others.append(pid)
    try:
        with tempfile.TemporaryDirectory() as folder:
            record(gctrace, pathlib.Path(folder), options)
            sides = [[f"{side}{run}.json" for run in range(options.runs)] for side in "ab"]
            subprocess.run([gctrace, "compare", *sides[0], "--", *sides[1]], cwd=folder, check=True)
    finally:
        for pid in others:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def record(gctrace, folder, options):
    (folder / "program.py").write_text(PROGRAM)
    less = {"a": 0.0, "b": options.less / 100}
    for run in range(options.runs):
        for side in "ab" if run % 2 == 0 else "ba":
            line = [gctrace, "-q", "--mode", "inject", "--step-function", "step", "-o", f"{side}{run}.json"]
            line += ["--", options.python, "program.py"]
            work = {"STEPS": str(options.steps), "TURNS": str(round(TURNS * (1 - less[side])))}
            subprocess.run(line, cwd=folder, env={**os.environ, **work}, check=True)


main()
