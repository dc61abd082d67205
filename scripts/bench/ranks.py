#!/usr/bin/env python3
"""Cost of a report on many ranks: a table with a row for each number of ranks, from their traces and
from their summaries.

    ranks.py --gctrace target/release/gctrace [--before OTHER_GCTRACE] [--ranks 8 32 128 512]
        [--steps 6 --collectives 3 --kernels 3] [--free] [--copies 8] [--hta PYTHON]

Profiles are those of generate_ranks.py. CPU seconds (user and system), wall seconds with --jobs 2, and
the largest memory of `gctrace analyze --format json`; --before adds those of another build on the same
traces. The reports from traces and summaries must be equal byte by byte.

With --copies, jobs of that many times the ranks, which do the same as the first ones: --ranks traces at
a time are summarized and deleted, and only the report on the summaries is measured.

--hta adds HolisticTraceAnalysis on the same traces, in a Python that has it: the whole process, which
parses (in some processes: memory is that of the largest), and computes the overlap of communication with
computation, the idle time of streams and the temporal breakdown. The last two are in gctrace's report,
too, and are compared.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


# Writes the figures of HTA that gctrace's report has, in us: of each rank, and of its streams.
HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
traces = dict(enumerate(sys.argv[3:]))
analysis = TraceAnalysis(trace_files=traces, trace_dir=sys.argv[2])
analysis.get_comm_comp_overlap(visualize=False)
temporal = analysis.get_temporal_breakdown(visualize=False)
idle, _ = analysis.get_idle_time_breakdown(ranks=list(traces), visualize=False)
json.dump({
    "temporal": temporal[
        ["rank", "idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"]].values.tolist(),
    "idle": idle[["rank", "stream", "idle_category", "idle_time"]].values.tolist(),
}, open(sys.argv[1], "w"))
"""


def hta(python, traces, folder):
    """CPU seconds, wall seconds and MB of HTA, and those of its import alone; its figures."""
    imported = run([python, "-c", "import hta.trace_analysis"], os.devnull)
    used = run([python, "-c", HTA, folder / "hta", folder / "traces", *traces], os.devnull)
    return used, imported, json.loads((folder / "hta").read_text())


def equal(report, figures):
    """How many of HTA's figures are those of a report, and how many there are."""
    ours = {}
    for device in report["gpu"]["devices"]:
        rank = device["rank"]
        names = ("idle_ns", "compute_ns", "non_compute_ns", "span_ns")
        ours[rank] = [device["temporal"][name] / 1000 for name in names]
        for stream in device["streams"]:
            for category, idle_ns in stream["idle_ns"].items():
                ours[rank, stream["stream"], category] = idle_ns / 1000
    pairs = [pair for rank, *values in figures["temporal"] for pair in zip(values, ours[rank])]
    pairs += [(value, ours[rank, stream, category]) for rank, stream, category, value in figures["idle"]]
    return sum(theirs == own for theirs, own in pairs), len(pairs)


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
    written = (folder / "from").stat().st_size / 1e6
    return [f"{size / 1e6:.0f}", f"{made:.0f} | {summaries:.0f}", shown(read), f"{written:.1f}"]


def shown(figures):
    return "{:.2f} | {:.2f} | {:.0f}".format(*figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--before", help="another gctrace, which may know no summaries and no --jobs")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128, 512])
    parser.add_argument("--copies", type=int, help="of each rank")
    parser.add_argument("--hta", metavar="PYTHON", help="a Python with HolisticTraceAnalysis")
    parser.add_argument("--free", action="store_true", help="hosts do not wait for their GPUs")
    for name, usual in (("steps", 6), ("collectives", 3), ("kernels", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    summaries = "summarize: CPU s | MB of summaries | summaries: CPU s | wall s | MB | MB of JSON |"
    before = "before: CPU s | wall s | MB | " if options.before else ""
    traces = "" if options.copies else f"{before}traces: CPU s | wall s | MB | "
    columns = f"| ranks | MB of traces | {traces}{summaries}"
    print(columns)
    print("|---|" + "---:|" * (columns.count("|") - 2))
    beside = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run([sys.executable, HERE / "generate_ranks.py", folder / "traces", "--ranks", str(ranks),
                            "--steps", str(options.steps), "--collectives", str(options.collectives),
                            "--kernels", str(options.kernels), *["--free"] * options.free], check=True)
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
            written = (folder / "whole").stat().st_size / 1e6
            print(f"| {ranks:,} | {size:.0f} | {' | '.join(row)} | {written:.1f} |", flush=True)
            if options.hta:
                used, imported, figures = hta(options.hta, traces, folder)
                same, compared = equal(json.loads((folder / "whole").read_text()), figures)
                beside.append(f"| {ranks:,} | {size:.0f} | {row[bool(options.before)]} | {shown(used)} "
                              f"| {shown(imported)} | {same:,} of {compared:,} |")
    if options.hta:
        print("\n| ranks | MB of traces | gctrace: CPU s | wall s | MB | HTA: CPU s | wall s | MB "
              "| its import: CPU s | wall s | MB | equal figures |")
        print("|---|" + "---:|" * 11)
        print("\n".join(beside))


if __name__ == "__main__":
    main()
