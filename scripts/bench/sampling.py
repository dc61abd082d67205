#!/usr/bin/env python3
"""What a program loses to samples: gctrace, py-spy and cProfile in turns with a run without any.

    sudo scripts/bench/sampling.py --gctrace FILE --python FILE [--py-spy FILE] [--rounds 5]

The program computes in small functions and sleeps 1 ms a turn, as one that waits for a GPU does; it measures its
own wall and CPU time. gctrace takes 99 samples a second and each time off the CPU, py-spy 99 samples a second,
cProfile every call. Printed: medians, and the slowdown against the run without in the same round.
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile

PROGRAM = """
import sys, time

def add(x, y):
    return x + y

def turn(n):
    total = 0
    for i in range(n):
        total = add(total, i % 7)
    return total

wall, cpu = time.perf_counter(), time.process_time()
for _ in range(1_000):
    turn(20_000)
    time.sleep(0.001)
with open(sys.argv[1], "w") as file:
    file.write(f"{time.perf_counter() - wall} {time.process_time() - cpu}")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--py-spy")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "program.py").write_text(PROGRAM)
        program = [options.python, "program.py", "times"]
        own = [options.gctrace, "-q", "--mode", "ebpf", "-o", "trace.json"]
        ways = {
            "without": program,
            "gctrace, no samples": [*own, "--sample", "0", "--", *program],
            "gctrace": [*own, "--", *program],
            "cProfile": [options.python, "-m", "cProfile", "-o", "profile", *program[1:]],
        }
        if options.py_spy:
            record = [options.py_spy, "record", "--rate", "99", "--format", "raw", "-o", "spy"]
            ways["py-spy"] = [*record, "--", *program]
        else:
            print("py-spy: left out, --py-spy names none")
        times = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, command in ways.items():
                subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                times[way].append(tuple(map(float, (folder / "times").read_text().split())))
    print("| | wall time | CPU time | wall, against without | CPU, against without |")
    print("|---|---|---|---|---|")
    for way, rows in times.items():
        medians = [statistics.median(column) for column in zip(*rows)]
        ratios = [
            statistics.median(one[at] / other[at] for one, other in zip(rows, times["without"])) for at in (0, 1)
        ]
        print(f"| {way} | {medians[0]:.2f} s | {medians[1]:.2f} s | {ratios[0]:.3f} | {ratios[1]:.3f} |")


if __name__ == "__main__":
    main()
