"""Launches at 100,000 a second and at full speed: drops by CUPTI and our ring, and the added cost
of a launch."""

import json
import os
import statistics
import sys

from bench import HERE, device, read_json, within
from compare import is_launch

LIMIT_S = 60
COUNT = 200_000 if device() == "cuda" else 20_000


def simulated():
    """Without a GPU: the bundle's simulated one."""
    folder = os.environ.get("GCTRACE_SIMGPU")
    return {"LD_LIBRARY_PATH": folder} if folder else {}


def launches(bench, name, every_ns, options=None):
    """One run: its own count and time, and the events if it was recorded."""
    command = [sys.executable, HERE / "launch_rate.py", HERE / "lib/launches.so", COUNT, every_ns]
    environment = os.environ | simulated()
    if options is None:
        return json.loads(bench.run(command, env=environment).stdout), None
    trace = bench.path(f"{name}.json.gz")
    done = bench.gctrace("record", *options, "-o", trace, "--", *command, env=environment)
    return json.loads(done.stdout.splitlines()[-1]), read_json(trace)["traceEvents"]


def run(bench):
    rows = []
    truth, events = launches(bench, "paced", 10_000, ("--mode", "inject"))
    span = truth["start_ns"] / 1e3, truth["end_ns"] / 1e3
    found = within(events, span)
    lost = sum(bench.lost(events).values())
    for what, count in (("launches", sum(map(is_launch, found))), ("kernels", sum(event.get("cat") == "kernel" for event in found))):
        rows.append([f"100,000 a second: {what}, recorded and made", count, truth["launches"],
                     "ok" if count == truth["launches"] else "ok: the rest is counted as lost" if count + lost >= truth["launches"] else "differs"])
    rows.append(["100,000 a second: lost by our own count", lost, None, ""])
    ways = {"unrecorded": None, "inject": ("--mode", "inject")}
    if os.path.exists("/sys/kernel/btf/vmlinux") and os.geteuid() == 0:
        ways["ebpf, counted per millisecond"] = ("--mode", "ebpf")
    times = {name: [] for name in ways}
    order = list(ways)
    for turn in (order, order[::-1]):
        for name in turn:
            truth, _ = launches(bench, "full", 0, ways[name])
            times[name].append(truth["ns"] / truth["launches"])
    base = statistics.mean(times["unrecorded"])
    for name, values in times.items():
        mean = statistics.mean(values)
        rows.append([f"ns per launch at full speed, {name}", mean, mean - base, "second: more than unrecorded"])
    return [{"title": "Launch rate", "head": ["", "", "", ""], "rows": rows}]
