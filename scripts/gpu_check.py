#!/usr/bin/env python3
"""Compares a recording on a real GPU with torch.profiler and nvidia-smi.

    gpu_check.py --trace trace.json.gz --profile profile.json --steps steps.json
                 --smi smi.csv [--machine TEXT]

Prints a Markdown table; exit code 1 if a figure is beyond its tolerance. The
inputs are made by gpu-check.sh. tests/python/test_gpu_check.py tests it.
"""

import argparse
import collections
import datetime
import gzip
import json
import pathlib
import sys

# Calls that start work on the GPU, under the names that both sides use.
LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "cudaGraphLaunch",
    "cuLaunchKernel",
    "cuLaunchCooperativeKernel",
    "cuGraphLaunch",
)
LAYERS = ("cuda_runtime", "cuda_driver")
# Columns of nvidia-smi --query-gpu, in the order in which gpu-check.sh asks for them.
SMI_COLUMNS = ("timestamp", "uuid", "utilization", "memory_mib", "power_w", "sm_clock_mhz", "memory_clock_mhz")

Row = collections.namedtuple("Row", "what ours theirs allowed ok")


def is_launch(event):
    return event.get("cat") in LAYERS and event.get("name", "").startswith(LAUNCHES)


def our_launches(events, steps):
    """Names of the launches that gctrace saw in the process while the program ran."""
    begin_us, end_us = steps["begin_ns"] / 1e3, steps["end_ns"] / 1e3
    return [
        event["name"]
        for event in events
        if is_launch(event) and event["pid"] == steps["pid"] and begin_us <= event["ts"] <= end_us
    ]


def their_launches(events):
    """Names of the profiler's launches. Runtime and driver records of one call share the
    correlation; gctrace records such a call once."""
    named = {}
    for event in events:
        if is_launch(event):
            correlation = event["args"]["correlation"]
            if event["cat"] == "cuda_runtime" or correlation not in named:
                named[correlation] = event["name"]
    return list(named.values())


def equal(what, ours, theirs):
    return Row(what, ours, theirs, "equal", ours == theirs)


def near(what, ours, theirs, allowed, relative=False):
    """Rows of figures that the two sides took at other moments."""
    if ours is None or theirs is None:
        return Row(what, ours, theirs, "not compared", True)
    limit = allowed * abs(theirs) / 100 if relative else allowed
    unit = f"{allowed} %" if relative else str(allowed)
    return Row(what, ours, theirs, f"within {unit}", abs(ours - theirs) <= limit)


def our_figures(events, steps):
    """NVML's samples of the program's GPU while it ran, as lists by figure."""
    device = None
    figures = collections.defaultdict(list)
    for event in events:
        args = event.get("args", {})
        if event.get("name") == "gctrace_gpu" and args.get("uuid") == steps["gpu"]:
            device = args["gpu"]
        if event.get("name") != "gctrace_gpu_sample" or args["gpu"] != device:
            continue
        if not steps["begin_ns"] / 1e3 <= event["ts"] <= steps["end_ns"] / 1e3:
            continue
        for name, member, unit in (
            ("utilization", "utilization_percent", 1),
            ("memory_mib", "memory_used_bytes", 1 << 20),
            ("power_w", "power_mw", 1000),
            ("sm_clock_mhz", "sm_clock_mhz", 1),
            ("memory_clock_mhz", "memory_clock_mhz", 1),
        ):
            if member in args:
                figures[name].append(args[member] / unit)
    return figures


def their_figures(text, steps, offset_ns, zone=None):
    """nvidia-smi's lines likewise. `offset_ns`: wall-clock time less monotonic time."""
    figures = collections.defaultdict(list)
    for line in text.splitlines():
        fields = dict(zip(SMI_COLUMNS, (field.strip() for field in line.split(","))))
        if len(fields) < len(SMI_COLUMNS) or fields["uuid"] != steps["gpu"]:
            continue
        moment = datetime.datetime.strptime(fields["timestamp"], "%Y/%m/%d %H:%M:%S.%f")
        at_ns = moment.replace(tzinfo=zone).timestamp() * 1e9 - offset_ns
        if steps["begin_ns"] <= at_ns <= steps["end_ns"]:
            for name in SMI_COLUMNS[2:]:
                try:
                    figures[name].append(float(fields[name]))
                except ValueError:  # [N/A]
                    pass
    return figures


def offset_ns(events):
    header = next(event["args"] for event in events if event.get("name") == "gctrace_header")
    return header["started_unix_ns"] - header["started_ns"]


def mean(values):
    return round(sum(values) / len(values), 1) if values else None


def compare_launches(ours, theirs, kernels):
    rows = [equal("launches", len(ours), len(theirs))]
    # Not under its own name: libraries with a runtime of their own launch by the driver's functions,
    # of which the profiler sees the runtime's.
    for name, count in sorted(collections.Counter(ours).items()):
        rows.append(Row(f"launches by {name}", count, theirs.count(name), "not compared", True))
    rows.append(Row("kernels (the profiler's own count)", None, kernels, "not compared", True))
    if not ours:
        rows[0] = rows[0]._replace(ok=False)
    return rows


def compare_figures(ours, theirs):
    def peak(figures, name):
        return round(max(figures[name]), 1) if figures[name] else None

    both = bool(ours["memory_mib"]) and bool(theirs["memory_mib"])
    return [
        Row("samples", len(ours["memory_mib"]), len(theirs["memory_mib"]), "some", both),
        near("utilization, mean %", mean(ours["utilization"]), mean(theirs["utilization"]), 15),
        near("memory peak, MiB", peak(ours, "memory_mib"), peak(theirs, "memory_mib"), 5, relative=True),
        near("power, mean W", mean(ours["power_w"]), mean(theirs["power_w"]), 15, relative=True),
        near("SM clock, mean MHz", mean(ours["sm_clock_mhz"]), mean(theirs["sm_clock_mhz"]), 10, relative=True),
        near("memory clock, peak MHz", peak(ours, "memory_clock_mhz"), peak(theirs, "memory_clock_mhz"), 1, relative=True),
    ]


def table(rows):
    def shown(value):
        return "-" if value is None else f"{value:,}"

    lines = ["| | gctrace | torch.profiler / nvidia-smi | allowed | |", "|---|---|---|---|---|"]
    for row in rows:
        verdict = "ok" if row.ok else "**differs**"
        lines.append(f"| {row.what} | {shown(row.ours)} | {shown(row.theirs)} | {row.allowed} | {verdict} |")
    return "\n".join(lines)


def read(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("trace", "profile", "steps", "smi"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    events, steps = read(options.trace)["traceEvents"], read(options.steps)
    profiled = read(options.profile)["traceEvents"]
    kernels = sum(event.get("cat") == "kernel" for event in profiled)
    rows = compare_launches(our_launches(events, steps), their_launches(profiled), kernels)
    smi = their_figures(options.smi.read_text(), steps, offset_ns(events))
    rows += compare_figures(our_figures(events, steps), smi)
    print(f"{options.machine} PyTorch {steps['torch']} (CUDA {steps['cuda']}), CPython {steps['python']}.\n")
    print(table(rows))
    sys.exit(not all(row.ok for row in rows))


if __name__ == "__main__":
    main()
