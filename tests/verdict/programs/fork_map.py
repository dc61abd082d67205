#!/usr/bin/env python3
"""Forks a short worker for each part of a large table, as map over processes does; few cycles in each."""

import multiprocessing

import progress

TABLE = []


def work(first):
    found = []
    for row in TABLE[first : first + 8_000]:
        pair = {"row": row["row"], "of": []}
        pair["of"].append([row["cells"]])
        found.append(pair)
        row["seen"] = found[-1]["of"]
    progress.step()


def main():
    TABLE.extend({"row": row, "cells": [row]} for row in range(120_000))
    progress.loaded()
    context = multiprocessing.get_context("fork")
    for first in range(0, len(TABLE), 16_000):
        processes = [context.Process(target=work, args=(first + own,)) for own in (0, 8_000)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
