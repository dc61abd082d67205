#!/usr/bin/env python3
"""Dynamic programming over pairs: a table of tuples that only grows."""

import progress


def main():
    progress.loaded()
    table = {}
    for row in range(600):
        for column in range(600):
            above, left = table.get((row - 1, column)), table.get((row, column - 1))
            best = max(above[0] if above else 0, left[0] if left else 0) + (row * column) % 7
            table[row, column] = (best, [row, column])
        progress.step()
    print(table[599, 599][0])


main()
