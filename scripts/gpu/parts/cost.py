"""Cost of recording per training step: runs with and without, in the order a b b a."""

import statistics

from bench import number_of_steps

LIMIT_S = 110
TURNS = ("without", "with", "with", "without")


def run(bench):
    medians = {"without": [], "with": []}
    for number, arm in enumerate(TURNS):
        name = f"{number}-{arm}"
        size = ("--steps", number_of_steps(400, 10), "--item")
        found = bench.train(name, *size) if arm == "without" else bench.record(name, *size)[1]
        medians[arm].append(statistics.median((end - start) / 1e3 for start, end in found["blocks"][0]["steps"]))
    without, recorded = (statistics.mean(medians[arm]) for arm in ("without", "with"))
    spread = max(max(values) / min(values) for values in medians.values())
    rows = [
        ["step, median us", without, recorded, f"{100 * (recorded / without - 1):+.2f} %"],
        ["the same arm's two runs differ by up to", None, None, f"{100 * (spread - 1):.2f} %"],
    ]
    return [{"title": "Cost of recording in-process", "head": ["", "unrecorded", "recorded", ""], "rows": rows}]
