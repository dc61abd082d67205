#!/usr/bin/env python3
"""A large heap is loaded once; then numbers only: the loading is what the collector costs."""

import progress


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(300_000)]
    progress.loaded()
    total = 0
    for step in range(60):
        for number in range(40_000):
            total = (total * 31 + number) % 1_000_003
        progress.step()
    return table


main()
