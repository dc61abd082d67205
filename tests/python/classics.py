"""The classic examples of what a collector is for, still there while the program waits for input."""

import gc
import sys


class Node:
    pass


def collect(item, cache=[]):
    cache.append(item)


def itself():
    """A list and a dict that contain themselves and each other."""
    names, numbers = {}, []
    names["self"], names["numbers"] = names, numbers
    numbers.extend([numbers, names])


def ring():
    first, second, third = Node(), Node(), Node()
    first.next, second.next, third.next = second, third, first


gc.collect()
gc.disable()
itself()
ring()
for number in range(3):
    collect([number])
# The address of the cache, for the picture of what keeps it alive.
print("ready", id(collect.__defaults__[0]), flush=True)
sys.stdin.readline()
