#!/usr/bin/env python3
"""A function defined inside a function calls itself: each call of the outer one leaves a cycle."""

import progress


def flatten(nested):
    found = []

    def visit(value):
        if isinstance(value, list):
            for item in value:
                visit(item)
        else:
            found.append(value)

    visit(nested)
    if progress.fixed("clear"):
        visit = None
    return found


def main():
    table = [[number] for number in range(150_000)]
    progress.loaded()
    nested = [[number, [number, [number]]] for number in range(30)]
    for step in range(30_000):
        flatten(nested)
        progress.step()
    return table


main()
