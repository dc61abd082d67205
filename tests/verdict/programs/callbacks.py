#!/usr/bin/env python3
"""Work in gc.callbacks, as a monitoring library does it: no collector's time."""

import gc

import progress


def report(phase, info):
    if phase == "stop":
        sum(range(20_000))


def main():
    gc.callbacks.append(report)
    progress.loaded()
    for step in range(800):
        rows = [[index] for index in range(900)]
        sum(len(row) for row in rows)
        progress.step()


main()
