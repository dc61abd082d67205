"""A training program of about two seconds: each step builds a graph and drops it."""

import sys
import time


def train_step(kept):
    graph = [[one] for one in kept[:40_000]]
    graph.append([[one] for one in graph])


def main():
    kept = [[] for _ in range(100_000)]
    end = time.monotonic() + 2
    steps = 0
    while "--forever" in sys.argv or time.monotonic() < end or steps < 20:
        train_step(kept)
        steps += 1
    print(f"{steps} steps with {len(kept)} objects kept")


main()
