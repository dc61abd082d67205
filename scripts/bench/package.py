#!/usr/bin/env python3
"""What the Python package costs: its import, and its callbacks a step.

    PYTHONPATH=packaging/python/src scripts/bench/package.py

Import: processes in turns, with and without it; the median of the differences. A step: `gctrace.step()`,
`StepMetrics.take()`, `mark()` with `summary()`, by timeit, the least of seven. A collection: gc.collect() of the
youngest generation, nearly empty, in turns without and with the entries of the meter, of a recording by
gc.callbacks and of OpenTelemetry (where it is installed).
"""

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit

import gctrace
from gctrace.trainers import StepMetrics

ROUNDS = 40


def started(code):
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begun


def collection():
    return min(timeit.repeat(lambda: gc.collect(0), number=2000, repeat=7)) / 2000


def main():
    differences = [started("import gctrace") - started("pass") for _ in range(ROUNDS)]
    print(f"import gctrace: {1e3 * statistics.median(differences):.2f} ms more than an empty program")
    metrics = StepMetrics()
    for name, call in (
        ("gctrace.step()", gctrace.step),
        ("StepMetrics.take()", metrics.take),
        ("mark() and summary()", lambda: gctrace.summary(gctrace.mark())),
    ):
        least = min(timeit.repeat(call, number=10_000, repeat=7)) / 10_000
        print(f"{name}: {1e6 * least:.2f} us")
    meter = list(gc.callbacks)
    del gc.callbacks[:]
    none = collection()
    gc.callbacks[:] = meter
    rows = [("the meter", collection())]
    del gc.callbacks[:]
    with tempfile.TemporaryDirectory() as folder:
        with gctrace.record(os.path.join(folder, "trace.json"), by="callbacks"):
            rows.append(("record by gc.callbacks", collection()))
    try:
        from gctrace.otel import instrument
    except ImportError:
        print("OpenTelemetry is not installed")
    else:
        end = instrument()
        rows.append(("OpenTelemetry", collection()))
        end()
    for name, took in rows:
        print(f"a collection with {name}: {1e6 * (took - none):.2f} us more than {1e6 * none:.2f} us")


if __name__ == "__main__":
    main()
