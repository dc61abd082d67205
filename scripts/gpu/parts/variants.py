"""The same comparison with several streams, CUDA graphs, two processes, a concurrent profiler,
torch.compile."""

import sys

from bench import HERE, Skip, device, operations, read_json, window, within
from parts.inject import paired, verdict

LIMIT_S = 150
SIZE = ("--steps", 30)


def two_processes(bench):
    """Each has the kernels of a run alone."""
    alone, steps, _ = bench.record("alone", *SIZE)
    expected = sum(operations(within(alone, window(steps), steps["pid"])).values())
    trace, outs = bench.path("two.json.gz"), [bench.path(f"two-{number}.json") for number in range(2)]
    trainings = " & ".join(f"{sys.executable} {HERE}/train.py --out {out} {' '.join(map(str, SIZE))}" for out in outs)
    bench.gctrace("record", "--mode", "inject", "-o", trace, "--", "sh", "-c", f"{trainings} & wait")
    events = read_json(trace)["traceEvents"]
    rows = []
    for out in outs:
        found = read_json(out)
        ours = sum(operations(within(events, window(found), found["pid"])).values())
        rows.append(["operations of one of two processes, of one alone", ours, expected, verdict(ours, expected)])
    return {"title": "Two processes", "head": ["", "gctrace", "alone", ""], "rows": rows}


def yielding(bench):
    """With --gpu-yield the program's own profiler gets its kernels, and the run still records
    collections."""
    profile = bench.path("yield.profile.json.gz")
    events, steps, _ = bench.record("yield", *SIZE, "--profile", profile, options=("--gpu-yield",))
    theirs = sum(event.get("cat") == "kernel" for event in read_json(profile)["traceEvents"])
    ours = sum(event.get("cat") == "kernel" for event in events)
    return {"title": "--gpu-yield", "head": ["", "gctrace", "torch.profiler", ""],
            "rows": [["kernels", ours, theirs, "ok" if ours == 0 and theirs > 0 else "differs"]]}


def run(bench):
    if device() != "cuda":
        raise Skip("torch sees no GPU")
    tables = []
    for name, arguments in (("streams", ("--streams",)), ("graphs", ("--graphs",))):
        tables.append(paired(bench, name, *SIZE, *arguments)[0])
    tables += [two_processes(bench), yielding(bench)]
    try:
        tables.append(paired(bench, "compile", *SIZE, "--compile")[0])
    except RuntimeError as error:
        tables.append({"title": "compile", "head": ["", ""], "rows": [["torch.compile", f"not run: {error}"]]})
    return tables
