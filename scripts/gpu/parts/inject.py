"""In-process recording by CUPTI against torch.profiler: the same steps, once with each."""

import statistics

from bench import WORK, device, gpu_order, number_of_steps, operations, percentile, profiled_window, read_json, window, within
from compare import outermost_launches

LIMIT_S = 90


def verdict(ours, theirs):
    return "ok" if ours == theirs else "differs"


def compare(title, ours, theirs, lost):
    """Ours and theirs: events of the same steps. GPU operations are paired in order by name, so
    that clock differences do not matter. Starts and ends are not compared: CUPTI serves one of the
    two, so these are two runs."""
    rows = []
    for category in WORK:
        counts = [sum(event.get("cat") == category for event in side) for side in (ours, theirs)]
        rows.append([f"{category}: operations", *counts, verdict(*counts)])
    launches = len(outermost_launches(ours)), len(outermost_launches(theirs))
    rows.append(["launches", *launches, verdict(*launches)])
    names = operations(ours), operations(theirs)
    rows.append(["names whose count differs", len(names[0] - names[1]), len(names[1] - names[0]),
                 verdict(names[0], names[1])])
    rows.append(["lost by our own count", sum(lost.values()), None, verdict(sum(lost.values()), 0)])
    pairs = []
    for key in names[0].keys() & names[1].keys():
        sides = [[event for event in gpu_order(side) if (event["cat"], event["name"]) == key] for side in (ours, theirs)]
        if len(sides[0]) == len(sides[1]):
            pairs += zip(*sides)
    if pairs:
        durations = [abs(a["dur"] - b["dur"]) for a, b in pairs]
        medians = [statistics.median(event["dur"] for event in side) for side in zip(*pairs)]
        rows.append(["operation, median us", *map(float, medians), "two runs: not compared"])
        for share, name in ((0.5, "median"), (0.99, "99 %"), (1, "worst")):
            rows.append([f"|difference of durations| {name}, us", float(percentile(durations, share)), None,
                         "two runs: not compared"])
    return {"title": title, "head": ["", "gctrace", "torch.profiler", ""], "rows": rows}


def paired(bench, name, *arguments):
    """A profiled run and a recorded run of the same steps, compared; our trace and theirs."""
    profile = bench.path(f"{name}.profile.json.gz")
    bench.train(f"{name}-profiled", *arguments, "--profile", profile)
    theirs = read_json(profile)["traceEvents"]
    ours, steps, trace = bench.record(name, *arguments)
    theirs = within(theirs, profiled_window(theirs))
    table = compare(name, within(ours, window(steps), steps["pid"]), theirs, bench.lost(ours))
    if device() == "cpu":
        table["rows"].append(["no GPU: only the procedure was tested", None, None, ""])
    return table, steps, trace, profile


def collections(ours, steps):
    """Collections against gc.callbacks of the same process, in the same run, by the same clock."""
    span = window(steps)
    pauses = [event for event in within(ours, span, steps["pid"]) if event.get("cat") == "gc"]
    truth = [found for found in steps["collections"] if span[0] <= found[0] / 1e3 <= span[1]]
    return [["collections in the steps", len(pauses), len(truth), verdict(len(pauses), len(truth))]]


def run(bench):
    table, steps, trace, _ = paired(bench, "transformer", "--steps", number_of_steps(60, 10), "--workers", 2)
    ours = read_json(trace)["traceEvents"]
    counts = {"title": "Collections", "head": ["", "gctrace", "gc.callbacks", ""], "rows": collections(ours, steps)}
    small = bench.record("small", "--steps", 5)[2]
    bench.keep(small, "inject.json.gz")
    return [table, counts]
