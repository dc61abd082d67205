#!/usr/bin/env python3
"""Objects in cycles with weak references whose callbacks keep an index clean."""

import weakref

import progress


class Entry:
    def __init__(self, key):
        self.key = key
        self.me = None if progress.fixed("clear") else self


def main():
    index = {}
    progress.loaded()
    for step in range(8_000):
        for number in range(60):
            key = (step, number)
            entry = Entry(key)
            index[key] = weakref.ref(entry, lambda _, key=key: index.pop(key, None))
        progress.step()
    print(len(index))


main()
