#!/usr/bin/env python3
"""Cyclic garbage whose __del__ does the work: the time is the program's own, whenever it is collected."""

import weakref

import progress


class Session:
    def __init__(self, number):
        self.number = number
        self.me = weakref.ref(self) if progress.fixed("weak") else self

    def __del__(self):
        sum(range(4_000))


def main():
    progress.loaded()
    for step in range(400):
        for number in range(20):
            Session(number)
        [[index] for index in range(400)]
        progress.step()


main()
