#!/usr/bin/env python3
"""A heap that only grows: an index of records, no garbage in cycles."""

import progress


def main():
    index = {}
    progress.loaded()
    for step in range(250):
        for number in range(step * 1_000, (step + 1) * 1_000):
            key = str(number)
            index[key] = {"key": key, "links": [number, number + 1], "rank": (number, [number])}
        progress.step()


main()
