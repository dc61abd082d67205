#!/usr/bin/env python3
"""Cost of a report on many ranks: a table with a row for each number of ranks, from their traces and
from their summaries.

    bench_ranks.py --gctrace target/release/gctrace [--before OTHER_GCTRACE] [--ranks 8 32 128 512]
        [--steps 6 --collectives 3 --kernels 3]

Profiles are those of generate_ranks.py. CPU seconds (user and system), wall seconds with --jobs 2, and
the largest memory of `gctrace analyze --format json`; --before adds those of another build on the same
traces. The reports from traces and summaries must be equal byte by byte.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def run(command, output):
    """CPU seconds, wall seconds and MB of a command, whose output goes to a file."""
    began = time.monotonic()
    with open(output, "wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command[:4]))} ...: wait status {status}")
    return used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss / 1000


def shown(figures):
    return "{:.2f} | {:.2f} | {:.0f}".format(*figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--before", help="another gctrace, which may know no summaries and no --jobs")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128, 512])
    for name, usual in (("steps", 6), ("collectives", 3), ("kernels", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    before = "| before: CPU s | wall s | MB " if options.before else ""
    print(f"| ranks | MB of traces {before}| traces: CPU s | wall s | MB | summarize: CPU s | MB of summaries "
          "| summaries: CPU s | wall s | MB | MB of JSON |")
    print("|---|" + "---:|" * (10 + 3 * bool(options.before)))
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run([sys.executable, HERE / "generate_ranks.py", folder / "traces", "--ranks", str(ranks),
                            "--steps", str(options.steps), "--collectives", str(options.collectives),
                            "--kernels", str(options.kernels)], check=True)
            traces = sorted((folder / "traces").iterdir())
            size = sum(trace.stat().st_size for trace in traces) / 1e6
            analyze = [options.gctrace, "analyze", "--jobs", "2", "--format", "json"]
            row = []
            if options.before:
                row.append(shown(run([options.before, "analyze", "--format", "json", *traces], folder / "before")))
            row.append(shown(run([*analyze, *traces], folder / "whole")))
            made = run([options.gctrace, "summarize", *traces, "-o", folder / "summaries"], os.devnull)
            summaries = sum(path.stat().st_size for path in (folder / "summaries").iterdir()) / 1e6
            row.append(f"{made[0]:.2f} | {summaries:.1f}")
            row.append(shown(run([*analyze, folder / "summaries"], folder / "from")))
            if (folder / "whole").read_bytes() != (folder / "from").read_bytes():
                sys.exit(f"{ranks} ranks: the report on summaries is another one")
            json = (folder / "whole").stat().st_size / 1e6
            print(f"| {ranks:,} | {size:.0f} | {' | '.join(row)} | {json:.1f} |", flush=True)


if __name__ == "__main__":
    main()
