#!/usr/bin/env python3
"""Freezes its table after setup, as advised, then makes cyclic garbage."""

import gc
import weakref

import progress


class Pair:
    def __init__(self):
        self.other = None
        self.data = {"a": [1], "b": [2]}


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(150_000)]
    gc.collect()
    gc.freeze()
    kept = []
    progress.loaded()
    for step in range(2_500):
        for _ in range(100):
            one, other = Pair(), Pair()
            one.other, other.other = other, weakref.ref(one) if progress.fixed("weak") else one
            if progress.fixed("clear"):
                other.other = None
        kept.append([step, {"loss": [step]}])
        sum(range(3_000))
        progress.step()
    return table


main()
