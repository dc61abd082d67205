"""Builds a heap of many kinds of containers and reports what its interpreter knows of it.

Usage: heap_truth.py LIVE DEAD [garbage] [freeze] [threads] [list]

Prints a line of JSON with the addresses of all tracked objects, then waits for a byte on standard
input, while the heap is taken; then prints a line with the references among these objects, by
gc.get_referents, and their sizes, by sys.getsizeof. With `garbage` it instead prints its pid, waits, and then prints the addresses of
the garbage, by DEBUG_SAVEALL, and of the objects that are left after it was freed. Nothing is collected before that.
"""
import collections
import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import os
import sys
import threading
import types
import weakref
import xml.etree.ElementTree

LIVE, DEAD = int(sys.argv[1]), int(sys.argv[2])
WHAT = sys.argv[3:]
gc.disable()


class Node:
    def __init__(self, number):
        self.number = number
        self.next = None
        self.data = [number, str(number)]
        self.meta = {"k": number}

    def method(self):
        return self


class Slots:
    __slots__ = ("a", "b", "__weakref__")


@dataclasses.dataclass
class Data:
    a: object = None
    b: object = None


Pair = collections.namedtuple("Pair", "x y")


class SubDict(dict):
    pass


class SubList(list):
    pass


class SubTuple(tuple):
    pass


class SubSet(set):
    pass


class SubInt(int):
    pass


class SubStr(str):
    pass


class SubException(Exception):
    pass


class SubReference(weakref.ref):
    __slots__ = ("owner",)


def generate(value):
    local = [value]
    while True:
        yield local


async def wait(value):
    local = [value]
    await Forever()
    return local


class Forever:
    def __await__(self):
        yield self


async def generate_async(value):
    yield value


@contextlib.contextmanager
def context(value):
    yield value


def make(count):
    """Cycles of all kinds; each is garbage when this returns."""
    for number in range(count):
        a, b = Node(number), Node(number)
        a.next, b.next = b, a
        s = Slots()
        s.a = s
        s.b = (s, [s], {s})

        def closure(argument=a, *, keyword=b):
            return closure, argument, keyword, s

        closure.attribute = closure
        try:
            raise SubException(a)
        except SubException as error:
            kept = error
        kept.me = kept
        try:
            {}["x"]
        except KeyError as error:
            error.__context__ = kept
            error.me = error
        d = Data()
        d.a = d
        d.b = Pair(d, 1)
        o = collections.OrderedDict()
        o["self"] = o
        o[1] = [o]
        o[(1, a)] = a
        q = collections.deque()
        for _ in range(number % 200):
            q.append(number)
        q.append(q)
        q.append(d)
        q.appendleft([q])
        a.partial = functools.partial(make, a, keyword=b)
        a.bound = a.method
        a.builtin = q.append
        u = SubDict()
        u["u"] = u
        u.x = u
        l = SubList()
        l.append(l)
        l.y = [l]
        t = SubTuple([a, 1, l])
        t.x = t
        m = SubSet([1, (a,)])
        m.x = m
        i = SubInt(2 ** (number % 200) - 7)
        i.x = i
        n = SubStr("text %d" % number)
        n.x = n
        g = generate(a)
        next(g)
        a.generator = g
        fresh = generate(b)
        b.generator = fresh
        c = wait(a)
        c.send(None)
        a.coroutine = c
        w = generate_async(b)
        b.async_generator = w
        manager = context(a)
        manager.__enter__()
        b.manager = manager
        b.reference = weakref.ref(a)
        b.callback = weakref.ref(a, closure)
        r = SubReference(a)
        r.owner = b
        b.own_reference = r
        b.proxy = weakref.proxy(a)
        weak = weakref.WeakKeyDictionary()
        weak[a] = b
        a.weak = weak
        dd = collections.defaultdict(lambda: dd)
        dd["d"] = dd
        it = iter([dd])
        dd["iterator"] = it
        dd["map"] = map(closure, [a])
        dd["chain"] = itertools.chain([a], [b])
        dd["keys"] = dd.keys()
        b.proxy_of_dict = types.MappingProxyType({"s": a})
        space = types.SimpleNamespace()
        space.s = space
        element = xml.etree.ElementTree.Element("x")
        element.append(xml.etree.ElementTree.Element("y"))
        a.element = element
        space.z = zip([space], [a])
        space.slice = slice(a, b, space)
        space.view = memoryview(bytearray(8))
        space.enumerate = enumerate([a])
        b.property = property(lambda self: a)
        s.b = s.b + (frozenset([s]),)
        a.frame = sys._getframe()
        a.frame = None
        a.counts = collections.Counter([a, b])
        big = Node(0)
        for attribute in range(40):
            setattr(big, "attribute%d" % attribute, [big])
        shared = Node(0)
        shared.__dict__["direct"] = [shared]
        module = types.ModuleType("made")
        module.self = module
        module.function = make
        space.module = module
        del kept, it, closure, dd


def holding_frame():
    """A frame that outlives its call."""
    value = [1]
    frame = sys._getframe()
    return frame, value


live = [Node(number) for number in range(LIVE)]
for number in range(LIVE - 1):
    live[number].next = live[number + 1]
frames = [holding_frame() for _ in range(20)]
suspended = [generate(number) for number in range(20)]
for one in suspended:
    next(one)
cache = functools.lru_cache(maxsize=None)(lambda key: [key])
for number in range(50):
    cache(number)
make(DEAD)
for number in range(50 if DEAD else 0):
    type("Dynamic%d" % number, (Node,), {"method": lambda self: Node})

if "list" in WHAT:
    head = None
    for number in range(1_000_000):
        head = [head]
ended = threading.Event()
if "threads" in WHAT:

    def run(value):
        local = [value]
        ended.wait()
        return local

    for number in range(8):
        threading.Thread(target=run, args=(["in a thread"],), daemon=True).start()


def report():
    if "garbage" in WHAT:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        os.read(0, 1)
        collect()
    objects = gc.get_objects()
    generations = [len(gc.get_objects(generation=number)) for number in range(3)]
    if "freeze" in WHAT:
        gc.freeze()
    first = {
        "pid": os.getpid(),
        "objects": [id(one) for one in objects],
        "generations": generations,
        "frozen": gc.get_freeze_count(),
        "of_report": [id(objects), id(generations)],
    }
    text = json.dumps(first) + "\n"
    del first
    os.write(1, b"")
    sys.stdout.write(text)
    sys.stdout.flush()
    os.read(0, 1)
    ids = set(map(id, objects))
    own = {id(objects), id(ids), id(sys._getframe())}
    referents = {}
    for one in objects:
        if id(one) not in own:
            referents[id(one)] = [id(to) for to in gc.get_referents(one) if id(to) in ids]
    sizes = [[id(one), sys.getsizeof(one), type(one).__flags__] for one in objects if id(one) not in own]
    print(json.dumps({"referents": referents, "sizes": sizes}), flush=True)
    os._exit(0)


def collect():
    gc.set_debug(gc.DEBUG_SAVEALL)
    collected = gc.collect()
    garbage = [id(one) for one in gc.garbage]
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    # What is made now may be where garbage was.
    own = set()
    own.update((id(own), id(garbage), id(gc.garbage)))
    alive = list(set(map(id, gc.get_objects())) - own)
    print(json.dumps({"collected": collected, "garbage": garbage, "alive": alive}), flush=True)
    os._exit(0)


report()
