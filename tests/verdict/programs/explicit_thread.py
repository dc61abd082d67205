#!/usr/bin/env python3
"""A thread collects after every fourth request, beside a loop that makes no cycles."""

import gc
import queue
import threading

import progress


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(100_000)]
    progress.loaded()
    due = queue.SimpleQueue()

    def clean():
        while due.get():
            gc.collect()

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    for step in range(100):
        sum(number * number for number in range(20_000))
        if step % 4 == 0:
            due.put(True)
        progress.step()
    due.put(False)
    cleaner.join()
    return table


main()
