"""Reports its stack at many places, and waits there to be compared with its memory."""
import gc
import itertools
import json
import os
import sys
import threading


def chain(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        # JSON has no lone surrogates; gctrace shows them as U+FFFD.
        file = "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in code.co_filename)
        name = getattr(code, "co_qualname", code.co_name)
        frames.append([file, name, frame.f_lineno])
        frame = frame.f_back
    return frames


def say(place, frame):
    facts = {"place": place, "thread": threading.get_ident(), "frames": chain(frame)}
    os.write(1, json.dumps(facts).encode() + b"\n")


def spot(place):
    say(place, sys._getframe()); os.read(0, 1)


def nested():
    def inner():
        def innermost(value):
            spot("nested")
            return value

        return [
            1,
            innermost(
                2,
            ),
        ]

    return inner()


def generator():
    yield 1
    try:
        raise ValueError
    except ValueError:
        spot(
            "generator"
        )
    yield from delegated()


def delegated():
    with open(os.devnull):
        spot("yield from")
        yield 2


async def awaited():
    spot("coroutine")
    return 1


async def coroutine():
    return await awaited() + 1


class Callbacks:
    @property
    def value(self):
        spot("property")
        return 1

    def __del__(self):
        spot("finalizer")

    def __lt__(self, other):
        spot("comparison")
        return True


def deep(levels):
    if levels == 0:
        spot("deep")
    else:
        deep(levels - 1)


def closure(free):
    def uses(*arguments, **named):
        cell = free
        return lambda: (cell, arguments, spot("cell"))

    return uses(1, 2, key=3)()


def non_ascii_größe():
    spot("latin-1 name")


def ωμέγα():
    spot("UCS-2 name")


def compiled(file):
    lines = "\n" * 300 + "def f(g):\n" + "\n" * 200 + "    g(\n\n\n 'compiled'\n  )\nf(spot)\n"
    exec(compile(lines, file, "exec"), {"spot": spot})


def cells():
    first, second, third, fourth = range(4)
    return lambda: (first, second, third, fourth)


def collector():
    """Up to 3.11 the collector runs while the frame of `cells` is being set up."""
    told = []

    def callback(phase, info):
        if not told:
            told.append(phase)
            spot("callback")

    gc.callbacks.append(callback)
    gc.collect()
    for threshold in range(1, 4):
        gc.collect()
        gc.set_threshold(threshold)
        told.clear()
        gc.enable()
        cells()
        gc.disable()
    gc.callbacks.clear()


def in_a_thread():
    for _ in [1, 2]:
        spot("thread")
    nested()
    next(itertools.islice(generator(), 1, None))
    compiled("in a thread.py")


def hold():
    # Never releases the GIL: the loop is in C and does not end.
    say("hold", sys._getframe()); all(itertools.repeat(1))


gc.disable()
spot("module")
nested()
list(generator())
try:
    coroutine().send(None)
except StopIteration:
    pass
[[spot("comprehension") for _ in [y]] for y in range(2)]
list(spot("generator expression") for _ in range(1))


class Body:
    spot("class body")

    class Inner:
        spot("inner class body")


(lambda: spot("lambda"))()
sorted([3, 1], key=lambda value: spot("key") or value)
sorted([Callbacks(), Callbacks()])
Callbacks().value
deep(40)
closure(4)
collector()
non_ascii_größe()
ωμέγα()
for name in ["plain.py", "d\xe9j\xe0.py", "\u6f22\u5b57.py", "\U0001f40d.py", "\udcff.py", "x" * 5000]:
    compiled(name)
for _ in range(2):
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
spot("after the threads")
hold()
