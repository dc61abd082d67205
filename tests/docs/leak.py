"""A program with a leak: the default argument of collect() keeps every batch."""

import gc
import time


class Batch:
    def __init__(self, number):
        self.number = number
        self.data = [number * 0.5 for _ in range(200)]


def collect(batch, cache=[]):
    cache.append(batch)
    return len(cache)


def main():
    for step in range(300):
        collect(Batch(step))
        time.sleep(0.01)
        if step % 100 == 99:
            # As between two epochs.
            time.sleep(0.5)
            gc.collect()


main()
