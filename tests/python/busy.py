"""Thousands of collections a second, for measuring the cost of recording them.

    busy.py [--iterations 60000] [--threshold 700] [--heap 0]

Every iteration leaves `threshold` cycles behind, which is about one collection of the
youngest generation. Prints {"iterations", "elapsed_ns", "cpu_ns", "collections"} as JSON.
"""

import argparse
import gc
import json
import time

from recorder import garbage


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=60_000)
    parser.add_argument("--threshold", type=int, default=700)
    parser.add_argument("--heap", type=int, default=0, help="objects kept alive meanwhile")
    options = parser.parse_args()

    kept = [[] for _ in range(options.heap)]
    gc.set_threshold(options.threshold, 10, 10)
    gc.collect()
    before = sum(entry["collections"] for entry in gc.get_stats())
    cpu, started = time.process_time_ns(), time.monotonic_ns()
    for _ in range(options.iterations):
        garbage(options.threshold)
    elapsed, cpu = time.monotonic_ns() - started, time.process_time_ns() - cpu
    after = sum(entry["collections"] for entry in gc.get_stats())
    print(json.dumps({"iterations": options.iterations, "elapsed_ns": elapsed, "cpu_ns": cpu,
                      "collections": after - before}))
    del kept


if __name__ == "__main__":
    main()
