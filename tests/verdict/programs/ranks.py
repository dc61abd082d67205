#!/usr/bin/env python3
"""Two ranks in lock step; rank 1 has a large heap and makes cycles, rank 0 waits for it."""

import multiprocessing

import progress


def rank(number, barrier):
    table = [{"row": row, "cells": [row]} for row in range(200_000 if number else 1_000)]
    barrier.wait()
    progress.loaded()
    for step in range(120):
        for index in range(300 if number else 3):
            one, other = [index], [index]
            one.append(other)
            other.append(one)
        sum(range(60_000))
        barrier.wait()
        progress.step()
    return table


def main():
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    processes = [context.Process(target=rank, args=(number, barrier)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
