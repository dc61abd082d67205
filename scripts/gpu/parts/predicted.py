"""Predicted against measured: the cost of pauses in the report, and the actual saving of steps
without them.

Arms alternate in blocks (train.py), so one run measures the difference. The prediction is made from
the same run's trace, without the collections between blocks.
"""

import gzip
import json

from bench import device, number_of_steps, read_json, standard_error

LIMIT_S = 200
HEAP = ("--heap", 1_000_000, "--kept", 6_000)
# Host-bound: the GPU waits for launches. GPU-bound: the host runs ahead.
QUEUES = {"shallow": ("--layers", 6, "--width", 256, "--batch", 4), "deep": ("--layers", 6, "--width", 1024, "--batch", 32)}
CPU = ("--heap", 100_000, "--kept", 600)
BLOCKS = 12
# A prediction is right within this many standard errors of both, or this share of the measured
# value.
ERRORS, SHARE = 2, 0.15


def of_arm(trained, arm):
    return [(block["end_ns"] - block["start_ns"]) / 1e6 for block in trained["blocks"] if block["arm"] == arm]


def only_in_blocks(trace, trained, path):
    """A copy of the trace without the collections between blocks."""
    blocks = [(block["start_ns"] / 1e3, block["end_ns"] / 1e3) for block in trained["blocks"]]
    span = blocks[0][0], blocks[-1][1]
    document = read_json(trace)

    def stays(event):
        if event.get("cat") != "gc":
            return event.get("ph") != "X" or span[0] <= event["ts"] <= span[1]
        return any(start <= event["ts"] <= end for start, end in blocks)

    document["traceEvents"] = [event for event in document["traceEvents"] if stays(event)]
    with gzip.open(path, "wt", compresslevel=1) as file:
        json.dump(document, file)
    return path


def size_of_block():
    return number_of_steps(60, 5)


def row(what, predicted, error, measured, measured_error):
    """A row with all values in ms."""
    if predicted is None or measured is None:
        return [what, predicted, error, measured, measured_error, "no prediction"]
    allowed = max(ERRORS * ((error or 0) ** 2 + (measured_error or 0) ** 2) ** 0.5, SHARE * abs(measured))
    return [what, predicted, error, measured, measured_error, "ok" if abs(predicted - measured) <= allowed else "differs"]


def ms(ns):
    return None if ns is None else ns / 1e6


def saved(first, second):
    """Sum of the differences of neighboring blocks of two arms, and its standard error."""
    differences = [a - b for a, b in zip(first, second)]
    error = standard_error(differences)
    return sum(differences), None if error is None else error * len(differences)


def cost_of_all(bench, name, size):
    events, trained, trace = bench.record(name, *size, "--arms", "on,off", "--block", size_of_block(), "--steps", size_of_block() * BLOCKS)
    measured = saved(of_arm(trained, "on"), of_arm(trained, "off"))
    gpu = bench.report(only_in_blocks(trace, trained, bench.path(f"{name}.blocks.json.gz"))).get("gpu")
    cause = next((cause for cause in (gpu or {}).get("cause", []) if cause["pid"] == trained["pid"]), None)
    if cause is None:
        return row(f"{name}: all pauses", None, None, *measured)
    return row(f"{name}: all pauses", ms(cause["cost_ns"]), ms(cause["standard_error_ns"]), *measured)


def run(bench):
    rows = []
    sizes = QUEUES if device() == "cuda" else {"cpu": CPU}
    for queue, size in sizes.items():
        for item in ((), ("--item",)):
            name = f"{queue}{'-item' if item else ''}"
            rows.append(cost_of_all(bench, name, (*HEAP, *size, *item)))
    return [{
        "title": "Predicted against measured, ms",
        "head": ["", "predicted", "±", "measured", "±", ""],
        "rows": rows,
    }]
