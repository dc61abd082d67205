"""A program with known leaks and known garbage; writes its heap three times, by gcheap.py.

    leaks.py FOLDER

FOLDER gets a.gcheap, b.gcheap, c.gcheap and truth.json: what the interpreter itself says of the last
heap.
"""

import collections
import functools
import gc
import json
import os
import sys
import types

import gcheap


class Batch:
    def __init__(self):
        self.data = bytes(2000)


class Node:
    pass


class Model:
    seen = []

    @functools.lru_cache(maxsize=None)
    def load(self, key):
        return [Batch() for _ in range(40)]


def collect(batch, cache=[]):
    cache.append(batch)


def ring():
    first, second, third = Node(), Node(), Node()
    first.peer, second.peer, third.peer = second, third, first


def itself():
    names, numbers = {}, []
    names["self"], names["numbers"] = names, numbers
    numbers.extend([numbers, names])


def name_of(thing):
    module, name = type(thing).__module__, type(thing).__qualname__
    return name if module == "builtins" else "%s.%s" % (module, name)


def truth(tracked):
    """Counts of the tracked objects that are still there, by type."""
    known = set(tracked)
    types_of = collections.Counter(name_of(thing) for thing in gc.get_objects() if id(thing) in known)
    return {"tracked": len(tracked), "batches": types_of["__main__.Batch"], "functions": types_of["function"],
            "function_count": sum(isinstance(thing, types.FunctionType) for thing in gc.get_objects())}


def main(folder):
    gc.disable()
    model = Model()
    for number in range(6):
        model.load(number)
    for number in range(300):
        collect(Batch())
        Model.seen.append(Batch())
    gc.collect()
    gcheap.write(os.path.join(folder, "a.gcheap"))
    for _ in range(500):
        collect(Batch())
    gcheap.write(os.path.join(folder, "b.gcheap"))
    for _ in range(200):
        collect(Batch())
    ring()
    itself()
    tracked = gcheap.write(os.path.join(folder, "c.gcheap"), collect=False)
    found = truth(tracked)
    found["garbage"] = gc.collect()
    with open(os.path.join(folder, "truth.json"), "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(sys.argv[1])
