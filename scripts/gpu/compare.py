"""Compares gctrace, torch.profiler and nvidia-smi on the same launches and samples."""

import collections
import datetime

# Calls that enqueue GPU operations, by the names that both sides use.
LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "cudaGraphLaunch",
    "cuLaunchKernel",
    "cuLaunchCooperativeKernel",
    "cuGraphLaunch",
)
LAYERS = ("cuda_runtime", "cuda_driver")
# Columns of nvidia-smi --query-gpu, in the order of parts/watching.py.
SMI_COLUMNS = ("timestamp", "uuid", "utilization", "memory_mib", "power_w", "sm_clock_mhz", "memory_clock_mhz")

Row = collections.namedtuple("Row", "what ours theirs allowed ok")


def is_launch(event):
    return event.get("cat") in LAYERS and event.get("name", "").startswith(LAUNCHES)


def outermost_launches(events):
    """Names of the launches. Runtime and driver records of one call share the correlation id: the
    outer one counts, as libraries with their own runtime launch through the driver. Without a
    correlation id each counts."""
    named = {}
    for event in filter(is_launch, events):
        correlation = event.get("args", {}).get("correlation") or id(event)
        if event["cat"] == "cuda_runtime" or correlation not in named:
            named[correlation] = event["name"]
    return list(named.values())


def near(what, ours, theirs, allowed, relative=False):
    """Rows of values that the two sides sampled at different times."""
    if ours is None or theirs is None:
        return Row(what, ours, theirs, "not compared", True)
    limit = allowed * abs(theirs) / 100 if relative else allowed
    unit = f"{allowed} %" if relative else str(allowed)
    return Row(what, ours, theirs, f"within {unit}", abs(ours - theirs) <= limit)


def our_figures(events, steps):
    """NVML samples of the program's GPU while it ran, as lists by value."""
    device = None
    figures = collections.defaultdict(list)
    for event in events:
        args = event.get("args", {})
        if event.get("name") == "gctrace_gpu" and args.get("uuid") == steps["gpu"]:
            device = args["gpu"]
        if event.get("name") != "gctrace_gpu_sample" or args["gpu"] != device:
            continue
        if not steps["start_ns"] / 1e3 <= event["ts"] <= steps["end_ns"] / 1e3:
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
    """nvidia-smi's lines likewise. `offset_ns`: wall-clock time minus monotonic time."""
    figures = collections.defaultdict(list)
    for line in text.splitlines():
        fields = dict(zip(SMI_COLUMNS, (field.strip() for field in line.split(","))))
        if len(fields) < len(SMI_COLUMNS) or fields["uuid"] != steps["gpu"]:
            continue
        taken = datetime.datetime.strptime(fields["timestamp"], "%Y/%m/%d %H:%M:%S.%f")
        at_ns = taken.replace(tzinfo=zone).timestamp() * 1e9 - offset_ns
        if steps["start_ns"] <= at_ns <= steps["end_ns"]:
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
