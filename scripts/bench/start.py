#!/usr/bin/env python3
"""What a start costs: a bare interpreter, `gctrace --version`, recordings, and each Python that a recorded program starts.

    scripts/bench/start.py GCTRACE [GCTRACE...] [--rounds N]

GCTRACE is an installed gctrace; several, such as an older build, are measured beside each other. Each round runs every
command once, in turns, so that they share the machine's state; commands marked cold first lose the program's and its
libraries' pages (posix_fadvise, only these files). Prints median and quartiles of the time in milliseconds, and the
median CPU time of all processes of the command, as Markdown.
"""

import argparse
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def evict(paths):
    """Drops the files' pages from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# Programs that a program starts, to tell their cost from that of the recording.
STARTED = 100
STARTS = f"""
import subprocess, sys
for _ in range({STARTED}):
    subprocess.run([sys.executable, "-c", "pass"])
"""


def cpu():
    """CPU time of all processes that were waited for, in milliseconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime)


def run(command, folder):
    """Time and CPU time in milliseconds."""
    start, used = time.monotonic_ns(), cpu()
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return (time.monotonic_ns() - start) / 1e6, cpu() - used


def commands(gctrace):
    """(name, command, whether it is cold) of each row."""
    one, many = [sys.executable, "-c", "import gc; gc.collect()"], [sys.executable, "-c", STARTS]
    rows = [("python alone", one, False), (f"python that starts {STARTED}", many, False)]
    for at, program in enumerate(gctrace):
        name = pathlib.Path(program).name + (f" {at + 1}" if len(gctrace) > 1 else "")
        modes = ["inject", "ebpf"] if os.geteuid() == 0 else ["inject"]
        rows += [(f"{name} --version", [program, "--version"], False), (f"{name} --version, cold", [program, "--version"], True)]
        for mode in modes:
            record = [program, "--mode", mode, "-o", "trace.json", "--"]
            rows.append((f"{name} --mode {mode} -- python", [*record, *one], False))
            rows.append((f"{name} --mode {mode} -- python that starts {STARTED}", [*record, *many], False))
        rows.append((f"{name} --mode inject -- python, cold", [program, "--mode", "inject", "-o", "trace.json", "--", *one], True))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gctrace", nargs="+")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    gctrace = [shutil.which(one) or sys.exit(f"no {one}") for one in options.gctrace]
    rows = commands(gctrace)
    measured = {name: [] for name, _, _ in rows}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, command, cold in rows:
                if cold:
                    program = pathlib.Path(command[0]).resolve()
                    evict([program, *program.parents[1].glob("lib/gctrace/*.so")])
                measured[name].append(run(command, folder))
    print("| command | median | quartiles | CPU time |\n|---|---|---|---|")
    for name, both in measured.items():
        low, middle, high = statistics.quantiles([wall for wall, _ in both], n=4)
        used = statistics.median(used for _, used in both)
        print(f"| `{name}` | {middle:.1f} ms | {low:.1f} - {high:.1f} ms | {used:.1f} ms |")


if __name__ == "__main__":
    main()
