"""Instances in cycles, and the lines that they were born on.

    garbage_births.py planted   of several kinds of classes, each on its own line
    garbage_births.py reuse     in memory that objects of another line had before
    garbage_births.py threads   in four threads
    garbage_births.py fork      before and after os.fork(), collected by both processes
    garbage_births.py code      by code that is made at run time, and dies before the collection
    garbage_births.py alive     that stay, among others that do not
    garbage_births.py many      that stay, in more samples than are kept
    garbage_births.py lines     that stay, after others of more lines than are kept

Prints one line of JSON: for each line the type of its instances and how many were garbage or, of the last
three, are alive at the end. Does not depend on gctrace.
"""

import gc
import json
import os
import sys
import threading
import time
import weakref

ROUNDS = 40
EACH = 1000


class Plain:
    pass


class Slots:
    __slots__ = ("own",)


class WeakSlots:
    __slots__ = ("own", "__weakref__")


class Parent:
    def __init__(self):
        self.child = Plain()  # born: child
        self.child.parent = self


class Listed(list):
    """An instance of list is reused by it, one of a subclass is not."""


class Mapped(dict):
    pass


class Failed(ValueError):
    pass


class Finalized:
    def __del__(self):
        self.own = None


def tie(own):
    own.own = own


def make():
    for number in range(EACH):
        tie(Plain())  # born: first
        tie(Plain())  # born: second
        tie(Slots())  # born: slots
        tie(WeakSlots())  # born: weak
        Parent()  # born: parent
        tie(Listed((number,)))  # born: listed
        tie(Mapped(number=number))  # born: mapped
        tie(Failed(number))  # born: failed
        tie(Finalized())  # born: finalized


TYPES = {
    "first": Plain, "second": Plain, "child": Plain, "slots": Slots, "weak": WeakSlots, "parent": Parent,
    "listed": Listed, "mapped": Mapped, "failed": Failed, "finalized": Finalized,
}


def of_make(times):
    return [(name, kind, times * EACH) for name, kind in TYPES.items()]


def planted():
    for _ in range(ROUNDS):
        make()
        gc.collect()
    return of_make(ROUNDS)


def early():
    return [Plain() for _ in range(EACH)]


def late():
    return [Plain() for _ in range(EACH)]  # born: late


def kept():
    return [[own, {"own": own}, (own,), own.__init__, lambda: own] for own in early()]


def reuse():
    for _ in range(ROUNDS):
        # Freed by reference counts, and lists, dicts, tuples that others will be at the addresses of.
        early()
        kept()
        left = late()
        for own in left:
            own.held = [own, {"own": own}, (own,), own.__init__, lambda own=own: own]
        del own, left
        gc.collect()
    return [("late", Plain, ROUNDS * EACH)]


def threads():
    def work():
        for _ in range(ROUNDS // 4):
            make()
            with lock:
                gc.collect()

    lock = threading.Lock()
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return of_make(ROUNDS)


def before():
    return [Plain() for _ in range(EACH * 20)]  # born: before


def fork():
    left = before()
    child = os.fork()
    for own in left:
        tie(own)
    del own, left
    gc.collect()
    planted()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return of_make(ROUNDS) + [("before", Plain, EACH * 20)]


def code():
    """All code at one name and line, but each a code object of its own; weak references show when
    they die."""
    died = []
    for number in range(ROUNDS):
        names = {"Plain": Plain, "tie": tie}
        exec(compile("\n" * number + "for _ in range(%d): tie(Plain())" % EACH, "made", "exec"), names)
        exec("def own(): pass", names)
        weakref.finalize(names["own"].__code__, died.append, number)
        del names
        gc.collect()
    assert died == list(range(ROUNDS)), died
    return []


KEPT = []


def keep(number):
    KEPT.append(Plain())  # born: plain
    KEPT.append("%090d" % number)  # born: text
    # In memory that those of the next line had: whose line that is, is not known.
    KEPT.append({"own": (KEPT, [float(number)])})
    rows = [{"own": (KEPT, [float(other)])} for other in range(30)]
    return [Plain() for _ in range(3)], "%0120d" % number, rows


def keep_many(times):
    for number in range(times):
        keep(number)
        if number % 1000 == 0:
            gc.collect(0)
    look()
    return [("plain", Plain, times), ("text", str, times)]


def look():
    # What is alive is looked at after a collection, at most every 2 s.
    time.sleep(2.1)
    gc.collect(0)


def alive():
    return keep_many(60 * EACH)


def many():
    return keep_many(550 * EACH)


def lines():
    # Without names, which 3.12 keeps.
    source = "[" + "lambda: [str(number) for number in range(300)],\n" * (10 * EACH) + "]"
    made = eval(compile(source, "made", "eval"))
    for at, own in enumerate(made):
        own()
        if at % 10 == 0:
            gc.collect(0)
    del made, own
    gc.collect()
    for number in range(60 * EACH):
        KEPT.append("%090d" % number)  # born: last
    look()
    return [("last", str, 60 * EACH)]


def main():
    gc.collect()
    gc.disable()
    with open(__file__, encoding="utf-8") as file:
        marks = {line.rpartition("# born: ")[2].strip(): at for at, line in enumerate(file, 1) if "# born: " in line}
    born = globals()[sys.argv[1]]()
    gc.collect()
    print(json.dumps([[marks[name], "__main__." + kind.__qualname__, count] for name, kind, count in born]))


if __name__ == "__main__":
    main()
