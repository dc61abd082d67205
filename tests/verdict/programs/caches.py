#!/usr/bin/env python3
"""lru_cache on a method keeps every instance: held, not garbage."""

import functools

import progress


class Model:
    def __init__(self, number):
        self.number = number
        self.weights = [number] * 20

    @functools.lru_cache(maxsize=None)
    def predict(self, value):
        return self.number * value


def main():
    progress.loaded()
    for step in range(4_000):
        for number in range(60):
            Model(number).predict(step)
        progress.step()


main()
