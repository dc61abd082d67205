#!/usr/bin/env python3
"""Nothing to gain: arithmetic on numbers, hardly a container."""

import progress


def main():
    total = 0
    progress.loaded()
    for step in range(150):
        for number in range(40_000):
            total = (total * 31 + number) % 1_000_003
        progress.step()
    print(total)


main()
