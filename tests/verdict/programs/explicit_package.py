#!/usr/bin/env python3
"""An installed package calls gc.collect() after each task that it runs."""

import pathlib
import sys

import progress

sys.path.insert(0, str(pathlib.Path(__file__).with_name("lib") / "python3" / "site-packages"))
import cleaner  # noqa: E402


def fit(number):
    return sum(value * number for value in range(40_000))


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(70_000)]
    progress.loaded()
    for step in range(25):
        cleaner.task(fit, step)
        progress.step()
    return table


main()
