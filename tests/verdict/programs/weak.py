#!/usr/bin/env python3
"""Objects in cycles with weak references whose callbacks keep an index clean."""

import weakref

import progress


class Entry:
    def __init__(self, key):
        self.key = key
        self.me = self


def main():
    index = {}
    progress.loaded()
    for step in range(6_000):
        for number in range(60):
            key = (step, number)
            index[key] = weakref.ref(Entry(key), lambda _, key=key: index.pop(key, None))
        progress.step()
    print(len(index))


main()
