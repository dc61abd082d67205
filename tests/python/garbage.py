"""Garbage of many kinds, and what the interpreter itself says about it.

    garbage.py saveall      kinds and sizes by DEBUG_SAVEALL, then the same garbage collected
    garbage.py finalizers   what finalizers free before the collector does
    garbage.py automatic    a run of automatic collections
    garbage.py visible      everything about collections that a program can see
    garbage.py debug        DEBUG_SAVEALL and DEBUG_COLLECTABLE, set and unset at run time
    garbage.py threads      four threads that make garbage
    garbage.py classes      classes that die, and others at their addresses
    garbage.py linked N     a doubly linked list of N nodes
    garbage.py freeze       gc.freeze() and gc.collect() inside callbacks
    garbage.py fork         os.fork() inside the callback of a weak reference
    garbage.py removed      the program removes the entries of gc.callbacks in the middle
    garbage.py killed       killed by a child while it collects

Prints one line of JSON. Does not depend on gctrace.
"""

import collections
import gc
import json
import os
import signal
import sys
import threading
import time
import tracemalloc
import weakref


class Node:
    pass


class Slots:
    __slots__ = ("one", "two", "__weakref__")


def instance_bytes():
    """What an instance of Holder takes, as tracemalloc counts it: sys.getsizeof leaves out the values
    that 3.11 and later have instead of a dict. The first instances of a class have place for more."""
    some = [Holder(None) for _ in range(100)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for at in range(100):
        some[at] = Holder(None)
    each = (tracemalloc.get_traced_memory()[0] - before) // 100
    # The old ones were not counted.
    tracemalloc.stop()
    return each if sys.version_info >= (3, 11) else sys.getsizeof(some[0])


def full_name(kind):
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else kind.__module__ + "." + name


def generator():
    own = yield
    while True:
        yield own


def finalizers():
    """Suspended generators: the collector closes them, and then nothing holds their lists."""
    gc.disable()
    gc.collect()
    for _ in range(100):
        endless = generator()
        next(endless)
        endless.send([endless])
    del endless
    begin = time.monotonic_ns()
    collected = gc.collect()
    line = generator.__code__.co_firstlineno + 3
    return {"collected": collected, "begin": begin, "end": time.monotonic_ns(), "line": line}


def closure(held):
    def recursive(depth):
        return recursive(depth - 1), held

    return recursive


async def coroutine(own):
    await own


def mixed(count):
    """Cycles of the usual kinds."""
    for index in range(count):
        one, two = Node(), Node()
        one.other, two.other = two, one
        one.items = [one, {index: two, "key": one}, {one, two}, (one, index)]
        slots = Slots()
        slots.one, slots.two = slots, (slots, collections.deque([slots], 3))
        closure(slots)
        one.bound = one.__init__
        one.method = type(one).__repr__.__get__(two)
        one.callback = Holder(one).call
        try:
            raise ValueError(index)
        except ValueError as error:
            kept = error
        kept.own = kept
        waiting = coroutine(one)
        one.waiting = waiting
        waiting.close()
        del kept, slots, one, two, waiting


class Holder:
    def __init__(self, held):
        self.held = held

    def call(self):
        pass


def stats():
    return [(own["collections"], own["collected"]) for own in gc.get_stats()]


def saveall():
    gc.collect()
    gc.disable()
    mixed(20)  # what is made only once
    gc.collect()
    mixed(500)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = collections.Counter(full_name(type(own)) for own in gc.garbage)
    of_holder = instance_bytes()
    sizes = collections.Counter()
    for own in gc.garbage:
        if type(own) in (list, tuple, dict, Slots):
            sizes[full_name(type(own))] += sys.getsizeof(own)
        if type(own) is Holder:
            sizes[full_name(Holder)] += of_holder
    gc.garbage.clear()
    gc.collect()
    mixed(500)
    begin = time.monotonic_ns()
    collected = gc.collect()
    end = time.monotonic_ns()
    return {
        "kinds": kinds,
        "sizes": sizes,
        "collected": collected,
        "begin": begin,
        "end": end,
        "again": gc.collect(),
        "recursive": closure.__code__.co_firstlineno + 1,
    }


def plain(count):
    """Cycles without finalizers."""
    for index in range(count):
        one, two = Node(), Node()
        one.other, two.other = two, one
        one.items = [one, {index: two}]


def automatic():
    gc.disable()
    gc.collect()
    before = stats()
    begin = time.monotonic_ns()
    gc.set_threshold(700, 5, 5)
    gc.enable()
    kept = [[index] for index in range(20000)]
    plain(20000)
    gc.disable()
    end = time.monotonic_ns()
    after = stats()
    del kept
    return {
        "collections": sum(b[0] - a[0] for a, b in zip(before, after)),
        "collected": sum(b[1] - a[1] for a, b in zip(before, after)),
        "begin": begin,
        "end": end,
    }


def visible():
    seen = []

    def note(phase, info):
        numbers = {key: info[key] for key in ("generation", "collected", "uncollectable")}
        kinds = collections.Counter(full_name(type(own)) for own in gc.get_objects())
        seen.append((phase, numbers, kinds["method"] if info["collected"] else 0))

    called = []
    gc.disable()
    gc.collect()
    gc.callbacks.insert(0, note)
    results, counts, objects = [], [], []
    for generation in (0, 1, 2, 2, 1, 0, 2) * 2:
        plain(50)
        mine = Node()
        mine.own = mine
        outlives = weakref.ref(mine, called.append)
        del mine
        results.append(gc.collect(generation))
        counts.append(gc.get_count())
        objects.append(len(gc.get_objects()))
        del outlives
    more = 0
    while gc.collect():
        more += 1
    gc.callbacks.remove(note)
    kinds = collections.Counter(full_name(type(own)) for own in gc.get_objects())
    return {
        "results": results,
        "counts": counts,
        "grown": [b - a for a, b in zip(objects, objects[1:])],
        "seen": seen,
        "called": len(called),
        "more": more,
        "stats": stats()[:2],
        "garbage": len(gc.garbage),
        "methods": kinds["method"],
        "subclasses": len(object.__subclasses__()),
    }


def debug():
    gc.disable()
    gc.collect()
    result = []
    for flags in (gc.DEBUG_SAVEALL, gc.DEBUG_COLLECTABLE, 0, gc.DEBUG_SAVEALL, 0):
        gc.set_debug(flags)
        plain(100)
        result.append((gc.collect(), len(gc.garbage)))
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()
    return {"result": result}


def threads():
    def work():
        for _ in range(30):
            plain(300)

    gc.disable()
    gc.collect()
    before = stats()
    begin = time.monotonic_ns()
    gc.set_threshold(500)
    gc.enable()
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    gc.disable()
    end = time.monotonic_ns()
    after = stats()
    return {
        "collected": sum(b[1] - a[1] for a, b in zip(before, after)),
        "begin": begin,
        "end": end,
    }


def classes():
    gc.disable()
    gc.collect()
    collected, begin = [], time.monotonic_ns()
    for index in range(40):
        made = type("Made%d" % index, (), {"method": lambda self: self})
        own = made()
        own.own = own
        del own, made
        collected.append(gc.collect())
    return {"collected": collected, "begin": begin, "end": time.monotonic_ns()}


def linked(count):
    gc.disable()
    gc.collect()
    first = last = Slots()
    for _ in range(count - 1):
        new = Slots()
        last.one, new.two = new, last
        last = new
    del first, last, new
    begin = time.monotonic_ns()
    collected = gc.collect()
    return {"collected": collected, "begin": begin, "end": time.monotonic_ns()}


def freeze():
    def callback(phase, info):
        gc.freeze() if phase == "start" else gc.unfreeze()
        gc.collect()

    gc.disable()
    gc.collect()
    collected = []
    for on in (False, True, False, True, False):
        if on:
            gc.callbacks.append(callback)
        plain(100)
        collected.append(gc.collect())
        if on:
            gc.callbacks.remove(callback)
            collected.append(gc.collect())
    return {"collected": collected}


def fork():
    gc.disable()
    gc.collect()
    children = []

    def callback(reference):
        child = os.fork()
        if child:
            children.append(child)

    plain(100)
    mine = Node()
    mine.own = mine
    reference = weakref.ref(mine, callback)
    del mine
    first = gc.collect()
    plain(200)
    second = gc.collect()
    if not children:
        print(json.dumps({"collected": [first, second], "pid": os.getpid()}), flush=True)
        os._exit(0)
    _, status = os.waitpid(children[0], 0)
    del reference
    return {"collected": [first, second], "pid": os.getpid(), "child": children[0], "status": status}


def removed():
    gc.disable()
    gc.collect()
    collected = []

    def callback(phase, info):
        if phase == "start":
            gc.callbacks.clear()

    for _ in range(3):
        gc.callbacks.append(callback)
        plain(100)
        collected.append(gc.collect())
        plain(100)
        collected.append(gc.collect())
    return {"collected": collected}


def killed():
    gc.disable()
    plain(100000)
    parent = os.getpid()
    if os.fork() == 0:
        time.sleep(int(sys.argv[2]) / 1000)
        os.kill(parent, signal.SIGKILL)
        os._exit(0)
    while True:
        gc.collect()
        plain(20000)


if __name__ == "__main__":
    arguments = [int(value) for value in sys.argv[2:]]
    found = globals()[sys.argv[1]](*(arguments if sys.argv[1] == "linked" else ()))
    print(json.dumps(found))
