"""Four leaks and a clean service, each in a process of its own, whose ids are printed.

    python growing.py [SECONDS]
"""
import ctypes
import gc
import os
import sys
import time

KEPT = []
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 40


class Session:
    def __init__(self, user):
        self.user = {"name": user}  # objects


def serve(keep):
    base = [{"n": n} for n in range(20_000)]  # set-up, which is no leak
    begin = time.monotonic()
    number = 0
    while time.monotonic() < begin + SECONDS:
        request = [Session(n) for n in range(200)]  # objects
        keep(request, number)
        number += 1
        if number % 10 == 0:
            gc.collect()
        # As many requests per second, however long a collection takes.
        time.sleep(max(0, begin + number * 0.1 - time.monotonic()))
    return base


def objects(request, number):
    KEPT.extend(request)


def texts(request, number):
    KEPT.extend("%0300d" % n for n in range(400))  # texts


def closures(request, number):
    session = request[0]
    for _ in range(100):
        KEPT.append(lambda extra, own=[number]: (session, own, extra))  # closures


def native(request, number):
    block = ctypes.CDLL(None).malloc
    block.restype = ctypes.c_void_p
    size = 1 << 18
    ctypes.memset(block(ctypes.c_size_t(size)), 1, size)


def clean(request, number):
    if len(KEPT) > 50:
        KEPT.clear()
    KEPT.append(request)


children = {}
for keep in (objects, closures, texts, native, clean):
    pid = os.fork()
    if pid == 0:
        serve(keep)
        sys.exit(0)
    children[pid] = keep.__name__
for pid, name in children.items():
    print(name, pid, flush=True)
for pid in children:
    os.waitpid(pid, 0)
