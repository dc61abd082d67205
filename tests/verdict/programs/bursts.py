#!/usr/bin/env python3
"""Every 20th step allocates much that reference counts free; the others compute."""

import progress


def main():
    table = [{"row": row, "cells": [row]} for row in range(80_000)]
    progress.loaded()
    for step in range(400):
        if step % 20 == 0:
            for _ in range(10):
                sum(len(row) for row in [{"x": [index]} for index in range(1_500)])
        sum(range(60_000))
        progress.step()
    return table


main()
