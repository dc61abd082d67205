#!/usr/bin/env python3
"""Calls gc.collect() every few steps over a heap of constant size."""

import gc

import progress


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(80_000)]
    progress.loaded()
    for step in range(400):
        batch = [{"x": [step, index]} for index in range(300)]
        sum(len(own) for own in batch)
        sum(range(20_000))
        if step % 20 == 0:
            gc.collect()
        progress.step()
    return table


main()
