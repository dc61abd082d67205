#!/usr/bin/env python3
"""A cache fills for a while and is then constant: its heap does not grow any more."""

import progress


def main():
    cache = {}
    progress.loaded()
    for step in range(6_000):
        for index in range(80):
            key = (step * 80 + index) % 60_000
            cache[key] = {"key": key, "value": [key]}
        sum(range(4_000))
        progress.step()


main()
