#!/usr/bin/env python3
"""Measures how long `gctrace heap -p PID` stops a program, and how fast it copies and reads.

    cargo build --release -p gctrace
    sudo scripts/bench_heap.py [--gctrace PATH] [--python PYTHON ...] [--repetitions N] [--nodes N ...]

PYTHON is a program or a name of scripts/interpreters.sh. Prints a Markdown table, one row for each
interpreter and heap size: medians and ranges over the repetitions. The
program's own view is there too: the longest gap between two of its ticks of 1 ms while its heap is
taken, which includes the stop and what the first pass over its memory costs it. Needs a quiet
machine.
"""
import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import manifest

PROGRAM = """
import sys, time, gc
gc.disable()
class Node:
    def __init__(self, number):
        self.number = number
        self.data = [number, str(number)]
        self.meta = {"k": number}
nodes = [Node(number) for number in range(int(sys.argv[1]))]
tensors = [bytearray(1 << 20) for _ in range(int(sys.argv[2]))]
print("ready", flush=True)
longest, last = 0, time.monotonic_ns()
log = open(sys.argv[3], "w", buffering=1)
while True:
    time.sleep(0.001)
    now = time.monotonic_ns()
    log.write("%d %d\\n" % (now, now - last))
    last = now
"""
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
SIZES = {"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def take(gctrace, pid, output):
    """Seconds stopped, bytes copied, objects, references, seconds in all."""
    start = time.monotonic()
    done = subprocess.run(
        [gctrace, "heap", "-p", str(pid), "-o", output, "--force"],
        check=True,
        capture_output=True,
        text=True,
    )
    wall = time.monotonic() - start
    stopped = re.search(r"stopped for ([\d.]+) (\S+) \(measured\)", done.stderr)
    copied = re.search(r"to copy ([\d.]+) (\w+)", done.stderr)
    counts = re.search(r"([\d,]+) objects, ([\d,]+) references", done.stderr)
    return (
        float(stopped[1]) * UNITS[stopped[2]],
        float(copied[1]) * SIZES[copied[2]],
        *(int(count.replace(",", "")) for count in counts.groups()),
        wall,
    )


def longest_gap(log, since, until):
    with open(log) as lines:
        rows = [line.split() for line in lines if line.endswith("\n")]
    gaps = [int(gap) for at, gap in rows if since <= int(at) <= until]
    return max(gaps, default=0) / 1e9


def spread(values, scale=1.0, digits=1):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle * scale:.{digits}f} ({low * scale:.{digits}f} - {high * scale:.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gctrace", default="target/release/gctrace")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="+", default=[20_000, 200_000, 1_000_000])
    parser.add_argument("--tensors", type=int, default=256, help="MiB of data beside the objects")
    options = parser.parse_args()
    print(
        "| interpreter | objects | references | copied MiB | stopped ms | copied GB/s | ms per 150 MB |"
        " longest gap ms | whole command s | ns per object |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for python, nodes in itertools.product(options.python, options.nodes):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            program = subprocess.Popen(
                [manifest.program(python), "-c", PROGRAM, str(nodes), str(options.tensors), log],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                program.stdout.readline()
                rows, gaps = [], []
                for _ in range(options.repetitions):
                    since = time.monotonic_ns()
                    rows.append(take(options.gctrace, program.pid, os.path.join(folder, "heap")))
                    time.sleep(0.1)
                    gaps.append(longest_gap(log, since, time.monotonic_ns()))
            finally:
                program.kill()
                program.wait()
        stopped = [row[0] for row in rows]
        copied = [row[1] for row in rows]
        objects, references = rows[-1][2:4]
        print(
            f"| {python} | {objects:,} | {references:,} | {statistics.median(copied) / (1 << 20):.0f} |"
            f" {spread(stopped, 1e3)} | {spread([c / s / 1e9 for c, s in zip(copied, stopped)], digits=2)} |"
            f" {spread([s * 150e6 / c for c, s in zip(copied, stopped)], 1e3)} | {spread(gaps, 1e3)} |"
            f" {spread([row[4] for row in rows], digits=2)} |"
            f" {spread([row[4] / objects for row in rows], 1e9, 0)} |"
        )


if __name__ == "__main__":
    main()
