#!/usr/bin/env python3
"""A library frees memory after each step, as some training frameworks do."""

import gc

import progress


class Memory:
    def release(self):
        gc.collect()


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(100_000)]
    progress.loaded()
    memory = Memory()
    for step in range(20):
        sum(number * number for number in range(30_000))
        memory.release()
        progress.step()
    return table


main()
