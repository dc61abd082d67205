#!/usr/bin/env python3
"""A thread collects each 50 ms beside a loop that makes no cycles."""

import gc
import threading

import progress


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(150_000)]
    progress.loaded()
    done = threading.Event()

    def clean():
        while not done.wait(0.05):
            gc.collect()

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    for step in range(400):
        sum(number * number for number in range(40_000))
        progress.step()
    done.set()
    cleaner.join()
    return table


main()
