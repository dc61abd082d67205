#!/usr/bin/env python3
"""Products of small matrices as lists of lists."""

import progress


def product(left, right):
    columns = list(zip(*right))
    return [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in left]


def main():
    one = [[float(row * column % 5) for column in range(24)] for row in range(24)]
    progress.loaded()
    for _ in range(350):
        other = product(one, one)
        assert len(other) == 24
        progress.step()


main()
