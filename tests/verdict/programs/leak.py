#!/usr/bin/env python3
"""A list that is never emptied: the heap grows, nothing of it is garbage."""

import progress

SEEN = []


def main():
    progress.loaded()
    for step in range(3_000):
        SEEN.append([{"step": step, "index": index} for index in range(150)])
        sum(range(4_000))
        progress.step()


main()
