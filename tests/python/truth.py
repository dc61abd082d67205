"""Every kind of collection in one process; the truth is written to a JSON file.

    truth.py TRUTH.json

One section per kind (see `sections` in the file, and `section` of each collection). Subinterpreters
have their own gc states from 3.9 on: their truth is in `interpreters`, since their creation. In 3.8
all share one state: the callbacks of the main one see all, and `stats` also counts collections when
the subinterpreters ended. In 3.9 they have their own states but share the list gc.callbacks, which
only the main one reads: their truth is `stats` alone.
"""

import gc
import json
import os
import sys
import threading
import weakref

from recorder import Recorder
from recorder import collect
from recorder import collect_by_c_api
from recorder import garbage

THREADS = 6


class Node:
    """One half of a cycle."""

    def __init__(self):
        self.other = None


def pair():
    a, b = Node(), Node()
    a.other, b.other = b, a
    return a


def automatic():
    """All generations by allocating: survivors trigger the older ones."""
    kept = []
    for _ in range(300):
        garbage(2_000)
        kept.append([[index] for index in range(200)])


def manual():
    for generation in (0, 1, 2, 2, 1, 0):
        garbage(100)
        collect(generation)


def nothing_to_do():
    for _ in range(5):
        collect(2)


def c_api():
    garbage(50)
    collect_by_c_api()
    collect_by_c_api()


def nested(counts):
    class Nested:
        def __del__(self):
            counts["nested_calls"] += 1
            collect(2)

    # Outside of any collection: the nested call is real.
    Nested()
    # Inside one: the call does nothing.
    looped = Nested()
    looped.itself = looped
    del looped
    collect(2)


def uncollectable():
    from _testcapi import with_tp_del

    @with_tp_del
    class Legacy:
        def __tp_del__(self):
            pass

    for _ in range(7):
        legacy = Legacy()
        legacy.itself = legacy
    del legacy
    collect(2)
    for left in gc.garbage:
        left.itself = None
    gc.garbage.clear()


def weak_references(counts):
    def gone(_):
        counts["weakref_callbacks"] += 1
        garbage(20)

    references = []
    for _ in range(50):
        node = pair()
        references.append(weakref.ref(node, gone))
    del node
    collect(2)


def threads():
    together = threading.Barrier(THREADS)
    turn = threading.Lock()

    def work(seed):
        together.wait()
        kept = []
        for _ in range(30):
            garbage(1_500 + 100 * seed)
            kept.append([[] for _ in range(100)])
        # While one thread is inside a collection, a call in another does nothing.
        together.wait()
        with turn:
            collect(seed % 3)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def oldest(recorder):
    """After a full collection, the number of objects in the oldest generation."""
    if "t" in getattr(sys, "abiflags", "") or (3, 14, 0) <= sys.version_info[:3] < (3, 14, 5):
        raise NotImplementedError("this collector has no oldest generation to count")
    kept = [[index] for index in range(10_000)]
    collect(2)
    # Nothing joins or leaves the oldest generation between here and the collection.
    recorder.collections[-1]["oldest_objects"] = len(gc.get_objects(generation=2))
    del kept


def recursion(depth):
    if depth:
        return recursion(depth - 1) + 1
    collect(0)
    return 0


def frames():
    """A collection in every kind of frame."""
    def generator():
        for generation in range(3):
            yield collect(generation)

    class Holder:
        collect(0)

        def method(self):
            return [collect(0) for _ in range(2)], (
                collect(0),
                {number: collect(
                    0) for number in range(2)},
            )

    list(generator())
    Holder().method()
    (lambda: collect(0))()
    for depth in (5, 21, 22, 23, 24, 40):
        recursion(depth)
    sorted([2, 1], key=lambda _: collect(0))
    try:
        raise ValueError
    except ValueError:
        collect(0)
    finally:
        collect(0)
    exec(compile("collect(0)\n\n\ncollect(\n0)", "<n\u00e4mlich \u65e5\u672c \U0001f40d>", "exec"),
         {"collect": collect})


def dying_code():
    """Code objects whose memory is reused: same address, another file and line."""
    for number in range(60):
        source = "\n" * number + "def made():\n    collect(0)\nmade()"
        exec(compile(source, "<made %d>" % number, "exec"), {"collect": collect})
    for number in range(60):  # even the line is the same
        exec(compile("collect(0)", "<like %d>" % number, "exec"), {"collect": collect})


SUBINTERPRETER = """
import sys
sys.path.insert(0, {folder!r})
from recorder import Recorder, collect, garbage
recorder = Recorder(interpreter={id}, stacks=True)
if sys.version_info >= (3, 10):
    recorder.install()
garbage(20_000)
for generation in (0, 1, 2):
    garbage(30)
    collect(generation)
recorder.finish({path!r})
"""


def subinterpreter_module():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return __import__(name)
        except ModuleNotFoundError:
            pass
    raise ImportError("no module for subinterpreters")


def subinterpreters(path, truths):
    interpreters = subinterpreter_module()
    for number in range(2):
        created = interpreters.create()
        sub_path = "%s.sub%d" % (path, number)
        # From 3.8 on an id is an int or an object that converts to one.
        code = SUBINTERPRETER.format(folder=os.path.dirname(os.path.abspath(__file__)),
                                     id=int(created), path=sub_path)
        if sys.version_info < (3, 9):
            code = "garbage = [[index] for index in range(20_000)]"
        failure = interpreters.run_string(created, code)
        if failure is not None:
            raise RuntimeError("subinterpreter failed: %s" % getattr(failure, "formatted", failure))
        interpreters.destroy(created)
        if sys.version_info >= (3, 9):
            with open(sub_path) as file:
                truths.append(json.load(file))
            os.unlink(sub_path)


def main():
    path = sys.argv[1]
    recorder = Recorder(stacks=True).install()
    counts = {"nested_calls": 0, "weakref_callbacks": 0}
    interpreters = []
    recorder.run("automatic", automatic)
    recorder.run("manual", manual)
    recorder.run("nothing to do", nothing_to_do)
    recorder.run("c api", c_api)
    recorder.run("nested", lambda: nested(counts))
    recorder.run("uncollectable", uncollectable)
    recorder.run("weak references", lambda: weak_references(counts))
    recorder.run("threads", threads)
    recorder.run("oldest", lambda: oldest(recorder))
    recorder.run("frames", frames)
    recorder.run("code objects that die", dying_code)
    recorder.run("subinterpreters", lambda: subinterpreters(path, interpreters))
    recorder.finish(path, counts=counts, interpreters=interpreters)


if __name__ == "__main__":
    main()
