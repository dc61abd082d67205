#!/usr/bin/env python3
"""Objects live just long enough to reach the oldest generation, then die in cycles there."""

import collections
import weakref

import progress


class Node:
    def __init__(self):
        self.me = weakref.ref(self) if progress.fixed("weak") else self
        self.data = [1]


def main():
    window = collections.deque(maxlen=120)
    progress.loaded()
    for step in range(5_000):
        window.append([Node() for _ in range(150)])
        progress.step()


main()
