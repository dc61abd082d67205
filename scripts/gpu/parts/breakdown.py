"""Busy and idle time: our report of torch.profiler's own trace. HolisticTraceAnalysis is not on
this machine: its values for the same file, which is kept, are computed afterwards."""

from bench import Skip, device, read_json

LIMIT_S = 45


def run(bench):
    if device() != "cuda":
        raise Skip("torch sees no GPU")
    profile = bench.path("profile.json.gz")
    bench.train("profiled", "--steps", 8, "--workers", 2, "--profile", profile)
    bench.keep(profile, "profiler.json.gz")
    gpu = bench.report(profile)["gpu"]
    busy = union_us(event for event in read_json(profile)["traceEvents"]
                    if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")) * 1e3
    ours = sum(found["busy_ns"] for found in gpu["devices"])
    rows = [["busy, ns", ours, round(busy), "ok" if abs(ours - busy) <= 1e-4 * busy else "differs"]]
    for found in gpu["devices"]:
        for name in ("span_ns", "idle_ns", "operations"):
            rows.append([f"device {found['device']}: {name}", found[name], None, "for HTA"])
        for name, value in (found.get("temporal") or {}).items():
            rows.append([f"device {found['device']}: {name}", value, None, "for HTA"])
    return [{"title": "Busy and idle", "head": ["", "gctrace", "union of the events", ""], "rows": rows}]


def union_us(events):
    """Length of the union of the events' intervals."""
    total, until = 0.0, float("-inf")
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
