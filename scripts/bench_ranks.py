#!/usr/bin/env python3
"""Cost of a report on many ranks: a table with a row for each number of ranks, from their traces and
from their summaries.

    bench_ranks.py --gctrace target/release/gctrace [--before OTHER_GCTRACE] [--ranks 8 32 128 512]
        [--steps 6 --collectives 3 --kernels 3] [--copies 8]

Profiles are those of generate_ranks.py. CPU seconds (user and system), wall seconds with --jobs 2, and
the largest memory of `gctrace analyze --format json`; --before adds those of another build on the same
traces. The reports from traces and summaries must be equal byte by byte.

With --copies, jobs of that many times the ranks, which do the same as the first ones: --ranks traces at
a time are summarized and deleted, and only the report on the summaries is measured.
"""

import argparse
import os
import pathlib
import re
import shutil
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


def copied(text, copy, ranks, copies):
    """The trace of a rank as that of the rank which does the same in another copy of the job."""
    rank, size = int(re.search(r'"rank": (\d+)', text)[1]), ranks * copies
    text = text.replace(f'"rank": {rank}, "world_size": {ranks}', f'"rank": {rank + copy * ranks}, "world_size": {size}')
    text = re.sub(r'"few_(\d+)"', lambda few: f'"few_{int(few[1]) + copy * ranks}"', text)
    return re.sub(r'("Process Group Name": "0", "Seq": \d+, "Group size": )\d+', rf"\g<1>{size}", text)


def copies(options, ranks, folder):
    """A row of the table of summaries alone."""
    first = sorted((folder / "traces").iterdir())
    made, size = 0, 0
    for copy in range(options.copies):
        part = folder / "part"
        part.mkdir(exist_ok=True)
        traces = []
        for trace in first:
            traces.append(part / f"{copy:04}-{trace.name}")
            traces[-1].write_text(copied(trace.read_text(), copy, ranks, options.copies))
            size += traces[-1].stat().st_size
        made += run([options.gctrace, "summarize", *traces, "-o", folder / "summaries"], os.devnull)[0]
        shutil.rmtree(part)
    summaries = sum(path.stat().st_size for path in (folder / "summaries").iterdir()) / 1e6
    read = run([options.gctrace, "analyze", "--jobs", "2", "--format", "json", folder / "summaries"], folder / "from")
    json = (folder / "from").stat().st_size / 1e6
    return [f"{size / 1e6:.0f}", f"{made:.0f} | {summaries:.0f}", shown(read), f"{json:.1f}"]


def shown(figures):
    return "{:.2f} | {:.2f} | {:.0f}".format(*figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--before", help="another gctrace, which may know no summaries and no --jobs")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128, 512])
    parser.add_argument("--copies", type=int, help="of each rank")
    for name, usual in (("steps", 6), ("collectives", 3), ("kernels", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    summaries = "summarize: CPU s | MB of summaries | summaries: CPU s | wall s | MB | MB of JSON |"
    before = "before: CPU s | wall s | MB | " if options.before else ""
    traces = "" if options.copies else f"{before}traces: CPU s | wall s | MB | "
    columns = f"| ranks | MB of traces | {traces}{summaries}"
    print(columns)
    print("|---|" + "---:|" * (columns.count("|") - 2))
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run([sys.executable, HERE / "generate_ranks.py", folder / "traces", "--ranks", str(ranks),
                            "--steps", str(options.steps), "--collectives", str(options.collectives),
                            "--kernels", str(options.kernels)], check=True)
            if options.copies:
                row = copies(options, ranks, folder)
                print(f"| {ranks * options.copies:,} | {' | '.join(row)} |", flush=True)
                continue
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
