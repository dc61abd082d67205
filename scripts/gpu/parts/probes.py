"""Recording by uprobes on the genuine libraries: launches against torch.profiler in the same run,
agreement of probes and library, cost of a launch probe."""

import os

from bench import Skip, device, number_of_steps, profiled_window, read_json, window, within
from compare import outermost_launches
from parts.inject import collections, verdict

LIMIT_S = 70


def run(bench):
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        raise Skip("this kernel has no BTF (/sys/kernel/btf/vmlinux)")
    if os.geteuid():
        raise Skip("needs root")
    profile = bench.path("profile.json.gz")
    ours, steps, _ = bench.record("ebpf", "--steps", number_of_steps(60, 10), "--profile", profile, mode="ebpf",
                                  options=("--cuda", "all", "--nvml-hz", 0))
    theirs = read_json(profile)["traceEvents"]
    counts = [len(outermost_launches(side)) for side in (within(ours, window(steps), steps["pid"]),
                                                    within(theirs, profiled_window(theirs)))]
    rows = [["launches in the same run", *counts, verdict(*counts)], *collections(ours, steps)]
    both, both_steps, trace = bench.record("both", "--steps", number_of_steps(60, 10), "--heap", 100_000, "--kept", 2_000, mode="both")
    pauses = [event for event in within(both, window(both_steps), both_steps["pid"]) if event.get("cat") == "gc"]
    seen = [event["args"].get("source") for event in pauses]
    rows.append(["pauses seen by probes and library", seen.count("both"), len(seen), verdict(seen.count("both"), len(seen))])
    rows += collections(both, both_steps)
    costs = next(event["args"]["probes"] for event in ours if event["name"] == "gctrace_end")
    rows += [[f"{cost['probe']}: hits, ns each", cost["hits"], cost["ns_per_hit"], ""] for cost in costs]
    bench.keep(trace, "both.json.gz")
    if device() == "cpu":
        rows.append(["no GPU: there were no launches", None, None, ""])
    return [{"title": "Probes", "head": ["", "gctrace", "torch.profiler, gc.callbacks", ""], "rows": rows}]
