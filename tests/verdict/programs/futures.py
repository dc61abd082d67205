#!/usr/bin/env python3
"""A pool of threads: results of failed tasks keep error and traceback, whose frames keep the results."""

import concurrent.futures

import progress


def attempt(number):
    rows = [[index] for index in range(60)]
    if number % 2:
        raise LookupError(number)
    return len(rows)


def wait(future):
    try:
        return future.result()
    except LookupError as error:
        failure = error
        if progress.fixed("del"):
            del failure, future
        return None


def main():
    table = [{"row": row, "cells": [row]} for row in range(40_000)]
    progress.loaded()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for step in range(180):
            for future in [pool.submit(attempt, step * 60 + own) for own in range(60)]:
                wait(future)
            progress.step()
    return table


main()
