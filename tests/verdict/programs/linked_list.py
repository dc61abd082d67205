#!/usr/bin/env python3
"""A cache of most recent entries as a doubly linked list: what is evicted keeps its neighbors' links."""

import weakref

import progress


class Link:
    __slots__ = ("key", "value", "before", "after", "__weakref__")

    def __init__(self, key, value):
        self.key, self.value = key, value
        self.before = self.after = None


def main():
    first = last = Link(-1, [])
    index = {-1: first}
    progress.loaded()
    for step in range(160_000):
        link = Link(step, [step])
        link.before = weakref.ref(last) if progress.fixed("weak") else last
        last.after = link
        last = link
        index[step] = link
        if len(index) > 4_000:
            evicted, first = first, first.after
            del index[evicted.key]
            if progress.fixed("clear"):
                evicted.after = first.before = None
        if step % 100 == 0:
            progress.step()


main()
