#!/usr/bin/env python3
"""Computes, builds one large table in between, and computes again."""

import progress


def compute(count):
    total = 0
    for number in range(count):
        total = (total * 31 + number) % 1_000_003
    return total


def main():
    progress.loaded()
    for _ in range(30):
        compute(40_000)
        progress.step()
    table = []
    for part in range(20):
        table.append([{"row": row, "part": [part]} for row in range(8_000)])
        progress.step()
    for _ in range(30):
        compute(40_000)
        progress.step()
    return table


main()
