#!/usr/bin/env python3
"""Loads one large pickle, as a dataset or a model's configuration, then works without containers."""

import pickle

import progress


def main():
    text = pickle.dumps([{"id": number, "box": (number, [number])} for number in range(150_000)])
    loaded = [pickle.loads(text) for _ in range(2)]
    progress.loaded()
    total = 0
    for step in range(40):
        for number in range(40_000):
            total = (total * 31 + number) % 1_000_003
        progress.step()
    return loaded


main()
