#!/usr/bin/env python3
"""Time from the start of a command to its end: a bare interpreter, `gctrace --version`, recordings.

    scripts/bench/start.py GCTRACE [--rounds N]

GCTRACE is an installed gctrace. Each round runs every command once, in turns, so that they share
the machine's state; commands marked cold first lose the program's and its libraries' pages
(posix_fadvise, only these files). Prints median and quartiles in milliseconds, as Markdown.
"""

import argparse
import os
import pathlib
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


def run(command, folder):
    """Milliseconds."""
    start = time.monotonic_ns()
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return (time.monotonic_ns() - start) / 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gctrace")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    gctrace = shutil.which(options.gctrace) or sys.exit(f"no {options.gctrace}")
    program = pathlib.Path(gctrace).resolve()
    files = [program, *program.parents[1].glob("lib/gctrace/*.so")]
    bare = [sys.executable, "-c", "import gc; gc.collect()"]
    record = [gctrace, "--mode", "inject", "-o", "trace.json", "--", *bare]
    rows = {
        "python alone": (bare, False),
        "gctrace --version": ([gctrace, "--version"], False),
        "gctrace --version, cold": ([gctrace, "--version"], True),
        "gctrace --mode inject -- python": (record, False),
        "gctrace --mode inject -- python, cold": (record, True),
    }
    if os.geteuid() == 0:
        rows["gctrace --mode ebpf -- python"] = ([gctrace, "--mode", "ebpf", *record[3:]], False)
    times = {name: [] for name in rows}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, (command, cold) in rows.items():
                if cold:
                    evict(files)
                times[name].append(run(command, folder))
    print("| command | median | quartiles |\n|---|---|---|")
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"| `{name}` | {middle:.1f} ms | {low:.1f} - {high:.1f} ms |")


if __name__ == "__main__":
    main()
