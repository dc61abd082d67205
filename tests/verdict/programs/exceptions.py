#!/usr/bin/env python3
"""An error outlives its except block: error, traceback and frame hold each other and a buffer."""

import progress


def attempt(number):
    buffer = bytearray(200_000)
    try:
        raise ValueError(number)
    except ValueError as error:
        last = error
        if progress.fixed("del"):
            del last
    return len(buffer)


def main():
    table = [[number] for number in range(60_000)]
    progress.loaded()
    for step in range(3_000):
        attempt(step)
        rows = [[index] for index in range(300)]
        table[step % len(table)] = rows[0]
        progress.step()


main()
