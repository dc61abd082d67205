"""What collections free, and what the interpreter itself says about it.

    freed.py TRUTH kinds        garbage of many kinds, by DEBUG_SAVEALL, then the same again, freed
    freed.py TRUTH automatic    automatic collections, of one thread and of four
    freed.py TRUTH classes      classes that die, and others at their addresses
    freed.py TRUTH interpreter  a subinterpreter
    freed.py TRUTH linked N     a doubly linked list of N objects
    freed.py TRUTH freeze       gc.freeze() and gc.collect() in callbacks
    freed.py TRUTH fork         os.fork() in the callback of a weak reference
    freed.py TRUTH endless      garbage until the file TRUTH.stop exists

TRUTH becomes a JSON file with a list of intervals, in ns of CLOCK_MONOTONIC: what was collected in
them, by gc.collect() or gc.get_stats(). Does not depend on gctrace.
"""

import collections
import gc
import json
import os
import sys
import threading
import time
import tracemalloc
import types
import weakref

intervals = []


class Node:
    pass


class Slots:
    __slots__ = ("one", "two", "__weakref__")


class Holder:
    def __init__(self, held):
        self.held = held

    def call(self):
        pass


def interval(collect, **more):
    begin = time.monotonic_ns()
    collected = collect()
    end = time.monotonic_ns()
    intervals.append({"pid": os.getpid(), "begin": begin, "end": end, "collected": collected, **more})


def by_stats(work):
    """The difference of gc.get_stats()."""

    def collected():
        before = sum(own["collected"] for own in gc.get_stats())
        work()
        return sum(own["collected"] for own in gc.get_stats()) - before

    return collected


def plain(count):
    """Cycles without finalizers."""
    for index in range(count):
        one, two = Node(), Node()
        one.other, two.other = two, one
        one.items = [one, {index: two}]


def fail(holder):
    raise ValueError(holder)


def mixed(count, classes):
    """Cycles of the usual kinds."""
    for index in range(count):
        one, two = Node(), Node()
        one.other, two.other = two, one
        one.items = [one, {index: two, "key": one}, {one, two}, (one, index)]
        slots = Slots()
        slots.one, slots.two = slots, (slots, collections.deque([slots], 3))

        def closure(own=None):
            return closure, own, slots

        closure.attribute = slots
        one.callback = Holder(one).call
        try:
            fail(one)
        except ValueError as error:
            kept = error
        kept.own = kept
        del kept, closure, slots, one, two
    for index in range(classes):

        class Made:
            attribute = index

            def method(self):
                return Made

        del Made


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


def place(own):
    """Function, file and line of an object that belongs to code."""

    def of_code(code, line=None):
        name = getattr(code, "co_qualname", code.co_name)
        return [name, code.co_filename, code.co_firstlineno if line is None else line]

    if isinstance(own, (types.CellType, types.MethodType)):
        try:
            own = own.__func__ if isinstance(own, types.MethodType) else own.cell_contents
        except ValueError:  # an empty cell
            return [None, None, None]
        if isinstance(own, (types.CellType, types.MethodType)):
            return [None, None, None]
    if isinstance(own, types.FunctionType):
        return of_code(own.__code__)
    if isinstance(own, types.FrameType):
        return of_code(own.f_code, own.f_lineno)
    if isinstance(own, types.TracebackType):
        return of_code(own.tb_frame.f_code, own.tb_lineno)
    if isinstance(own, type):
        methods = [one for one in vars(own).values() if isinstance(one, types.FunctionType)]
        if methods:
            return [own.__qualname__] + of_code(methods[0].__code__)[1:]
        return [own.__qualname__, None, None]
    return [None, None, None]


def kinds():
    gc.disable()
    gc.collect()
    mixed(20, 3)  # what is made only once
    gc.collect()
    mixed(300, 20)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    counted = collections.Counter(
        json.dumps([full_name(type(own))] + place(own)) for own in gc.garbage
    )
    of_holder = instance_bytes()
    sizes = collections.Counter()
    for own in gc.garbage:
        if type(own) in (list, tuple, Slots):
            sizes[full_name(type(own))] += sys.getsizeof(own)
        if type(own) is Holder:
            sizes[full_name(Holder)] += of_holder
    gc.garbage.clear()
    gc.collect()
    mixed(300, 20)
    interval(gc.collect, kinds=counted, sizes=sizes)


def automatic():
    def threads():
        workers = [threading.Thread(target=plain, args=(5000,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    gc.collect()
    gc.set_threshold(500, 5, 5)
    # The last objects of a thread are freed while it ends.
    for work in (lambda: plain(5000), threads, gc.collect):
        interval(by_stats(work))


def classes():
    gc.disable()
    gc.collect()
    for index in range(40):
        made = type("Made%d" % index, (), {"method": lambda self: self})
        own = made()
        own.own = own
        name = made.__module__ + "." + made.__qualname__
        del own, made
        interval(gc.collect, type=name)


SUBINTERPRETER = """
import gc, json, time
class Node:
    pass
gc.disable()
gc.collect()
for index in range(100):
    one = Node()
    one.one = one
begin = time.monotonic_ns()
collected = gc.collect()
end = time.monotonic_ns()
with open({path!r}, "w") as file:
    json.dump({{"begin": begin, "end": end, "collected": collected}}, file)
"""


def interpreter():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = __import__(name)
            break
        except ImportError:
            pass
    else:
        return  # a build without them
    path = sys.argv[1] + ".inner"
    created = module.create()
    failure = module.run_string(created, SUBINTERPRETER.format(path=path))
    if failure is not None:
        raise RuntimeError(failure)
    module.destroy(created)
    with open(path) as file:
        intervals.append({"pid": os.getpid(), **json.load(file)})


def linked():
    gc.disable()
    gc.collect()
    first = last = Slots()
    for _ in range(int(sys.argv[3]) - 1):
        new = Slots()
        last.one, new.two = new, last
        last = new
    del first, last, new
    interval(gc.collect)


def freeze():
    def callback(phase, info):
        if phase == "start":
            gc.freeze()
            gc.unfreeze()
        gc.collect()

    gc.disable()
    gc.collect()
    for on in (False, True, False):
        if on:
            gc.callbacks.append(callback)
        plain(100)
        interval(by_stats(gc.collect))
        if on:
            gc.callbacks.remove(callback)


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
    # A child that is forked in a collection completes it.
    interval(gc.collect, forked=True)
    plain(200)
    interval(gc.collect)
    if not children:
        write(sys.argv[1] + ".child")
        os._exit(0)
    os.waitpid(children[0], 0)


def endless():
    while not os.path.exists(sys.argv[1] + ".stop"):
        plain(1000)
        write(sys.argv[1])


def write(path):
    with open(path + ".part", "w") as file:
        json.dump(intervals, file)
    os.rename(path + ".part", path)


if __name__ == "__main__":
    globals()[sys.argv[2]]()
    write(sys.argv[1])
