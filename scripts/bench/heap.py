#!/usr/bin/env python3
"""Measures how long `gctrace heap -p PID` stops a program, and how fast it copies and reads.

    cargo build --release -p gctrace
    sudo scripts/bench/heap.py [--gctrace PATH] [--python PYTHON ...] [--repetitions N] [--nodes N ...]
                               [--kinds KIND ...] [--load N ...] [--predictions]

PYTHON is a program or a name of scripts/interpreters.sh; KIND says what the nodes are. Prints a Markdown
table, one row for each interpreter, kind, heap size and number of busy loops: medians and ranges over the
repetitions. The program's own view is there too: the longest gap between two of its ticks of 1 ms while
its heap is taken, which includes the stop and what the first pass over its memory costs it. Needs a quiet
machine.

--predictions: compares the stop that gctrace announced, at most, with the one that it measured and with
the longest gap instead; the last line has the share of tries in which the announced one was longer.
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
make = {
    "instances": Node,
    "lists": lambda number: [],
    "dicts": lambda number: {"k": number},
    "ints": int,
}
nodes = list(map(make[sys.argv[4]], range(int(sys.argv[1]))))
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


class Taken:
    """One heap: what gctrace printed, in seconds and bytes; without `stopped` if it refused."""

    def __init__(self, gctrace, pid, output):
        start = time.monotonic()
        command = [*gctrace, "heap", "-p", str(pid), "-o", output, "--force"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.wall = time.monotonic() - start
        # KiB (getrusage(2)).
        self.cpu, self.memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
        if process.returncode != 0:
            if process.returncode != 1 or "runs on unharmed" not in said:
                raise SystemExit(said)
            self.stopped = None
            return
        announced = re.search(r"for at most about ([\d.]+) (\S+) \(predicted\)", said)
        stopped = re.search(r"stopped for ([\d.]+) (\S+) \(measured\)", said)
        copied = re.search(r"to copy ([\d.]+) (\w+)", said)
        counts = re.search(r"([\d,]+) objects, ([\d,]+) references", said)
        self.announced = float(announced[1]) * UNITS[announced[2]]
        self.stopped = float(stopped[1]) * UNITS[stopped[2]]
        self.copied = float(copied[1]) * SIZES[copied[2]]
        self.objects, self.references = (int(count.replace(",", "")) for count in counts.groups())


def longest_gap(log, since, until):
    with open(log) as lines:
        rows = [line.split() for line in lines if line.endswith("\n")]
    gaps = [int(gap) for at, gap in rows if since <= int(at) <= until]
    return max(gaps, default=0) / 1e9


def spread(values, scale=1.0, digits=1):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle * scale:.{digits}f} ({low * scale:.{digits}f} - {high * scale:.{digits}f})"


def speed_row(taken):
    last = taken[-1]
    pairs = [(one.copied, one.stopped) for one in taken]
    return [
        f"{last.objects:,}",
        f"{last.references:,}",
        f"{statistics.median(one.copied for one in taken) / (1 << 20):.0f}",
        spread([one.stopped for one in taken], 1e3),
        spread([copied / stopped / 1e9 for copied, stopped in pairs], digits=2),
        spread([stopped * 150e6 / copied for copied, stopped in pairs], 1e3),
        spread([one.gap for one in taken], 1e3),
        spread([one.wall for one in taken], digits=2),
        spread([one.wall / one.objects for one in taken], 1e9, 0),
        spread([one.cpu for one in taken], digits=2),
        spread([one.memory / (1 << 20) for one in taken], digits=0),
        spread([(one.memory - one.copied) / one.objects for one in taken], digits=0),
    ]


def prediction_row(taken):
    done = [one for one in taken if one.stopped is not None]
    if not done:
        return ["", "", "", "", f"0 of 0, {len(taken)} refused"]
    refused = f", {len(taken) - len(done)} refused" if len(done) < len(taken) else ""
    return [
        f"{done[-1].objects:,}",
        spread([one.announced for one in done], 1e3, 0),
        spread([one.stopped for one in done], 1e3, 0),
        spread([one.gap for one in done], 1e3, 0),
        f"{sum(one.announced >= one.stopped for one in done)} of {len(done)}{refused}",
    ]


SPEED = [
    "objects", "references", "copied MiB", "stopped ms", "copied GB/s", "ms per 150 MB",
    "longest gap ms", "whole command s", "ns per object", "CPU s", "peak MiB", "bytes per object beside the copy",
]  # fmt: skip
PREDICTION = ["objects", "announced ms", "stopped ms", "longest gap ms", "announced >= stopped"]


def measure(options, python, kind, nodes, load):
    """The heaps of one program."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        log = os.path.join(folder, "log")
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
        program = subprocess.Popen(
            [*options.wrapper, manifest.program(python), "-c", PROGRAM, str(nodes), str(options.tensors), log, kind],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            program.stdout.readline()
            taken = []
            for _ in range(options.repetitions):
                since = time.monotonic_ns()
                gctrace = [*options.wrapper, options.gctrace]
                one = Taken(gctrace, program.pid, os.path.join(folder, "heap"))
                time.sleep(0.1)
                one.gap = longest_gap(log, since, time.monotonic_ns())
                taken.append(one)
            return taken
        finally:
            for process in [program, *busy]:
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gctrace", default="target/release/gctrace")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="+", default=[20_000, 200_000, 1_000_000])
    parser.add_argument("--tensors", type=int, default=256, help="MiB of data beside the objects")
    parser.add_argument("--kinds", nargs="+", default=["instances"], help="instances, lists, dicts, ints")
    parser.add_argument("--load", type=int, nargs="+", default=[0], help="busy loops")
    parser.add_argument("--predictions", action="store_true")
    parser.add_argument(
        "--wrapper", type=str.split, default=[], help="runs program and gctrace: 'setpriv --reuid 65534'"
    )
    options = parser.parse_args()
    columns = ["interpreter", "nodes", "busy loops", *(PREDICTION if options.predictions else SPEED)]
    print(f"| {' | '.join(columns)} |\n|---|---|{'---:|' * (len(columns) - 2)}", flush=True)
    done = []
    for python, kind, nodes, load in itertools.product(options.python, options.kinds, options.nodes, options.load):
        taken = measure(options, python, kind, nodes, load)
        row = prediction_row(taken) if options.predictions else speed_row(taken)
        print(f"| {python} | {nodes:,} {kind} | {load} | {' | '.join(row)} |", flush=True)
        done += [one for one in taken if one.stopped is not None]
    if options.predictions:
        kept = sum(one.announced >= one.stopped for one in done)
        gaps = sum(one.announced >= one.gap for one in done)
        print(f"\n{kept} of {len(done)} stops were as short as announced; so was the longest gap in {gaps}.")


if __name__ == "__main__":
    main()
