#!/usr/bin/env python3
"""Frozen and with a raised threshold already, over a large heap: nothing is left to change."""

import gc

import progress


def main():
    table = [{"row": row, "cells": [row]} for row in range(200_000)]
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    progress.loaded()
    for step in range(1_500):
        batch = [{"x": [index]} for index in range(300)]
        sum(len(row) for row in batch)
        sum(range(10_000))
        progress.step()
    return table


main()
