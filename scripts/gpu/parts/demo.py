"""The simulated GPU compared with the real one: differences show where to correct the simulator."""

from bench import device

# A debug build, as in the trial without a GPU, reads this trace in 10 s, and twice.
LIMIT_S = 90


def figures(report):
    gpu = report.get("gpu") or {}
    launching = next(iter((gpu.get("launching") or {}).get("devices", [])), {})
    latency = launching.get("latency") or {}
    found = next(iter(gpu.get("devices", [])), {})
    return {
        "launch to start, median ns": latency.get("p50_ns"),
        "launch to start, 5 % ns": latency.get("p5_ns"),
        "launch to start, 99 % ns": latency.get("p99_ns"),
        "busy ratio": found.get("busy_ratio"),
        "operations": found.get("operations"),
    }


def run(bench):
    trace = bench.path("demo.json")
    bench.gctrace("demo", "-o", trace)
    simulated = figures(bench.report(trace))
    real = {}
    if device() == "cuda":
        real = figures(bench.report(bench.record("real", "--steps", 200, "--batch", 4)[2]))
    rows = [[name, value, real.get(name), "not compared" if real else "no GPU"] for name, value in simulated.items()]
    return [{"title": "Simulated and real", "head": ["", "demo", "real", ""], "rows": rows}]
