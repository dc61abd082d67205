"""Computes in known functions and threads, and writes the CPU time of each to the given file, and when it measured.

Its child, forked at half of the run, computes in `forked` alone. It collects nowhere else, also not at its end.
"""

import gc
import json
import os
import sys
import threading
import time
import zlib

gc.disable()
KEEP = [[number] for number in range(200_000)]


def first(turns):
    total = 0
    for turn in range(turns):
        total += turn * turn
    return total


def second(turns):
    total = 0
    for turn in range(turns):
        total -= turn * turn
    return total


def collected():
    gc.collect()


def forked(turns):
    total = 0
    for turn in range(turns):
        total += turn ^ 5
    return total


def native(data, times):
    start = time.thread_time_ns()
    for _ in range(40):
        zlib.crc32(data)
    times["native"] = time.thread_time_ns() - start


def timed(times, function, *arguments):
    start = time.thread_time_ns()
    function(*arguments)
    times[function.__name__] = times.get(function.__name__, 0) + time.thread_time_ns() - start


def main():
    times = {}
    begin, spent = time.monotonic_ns(), time.process_time_ns()
    thread = threading.Thread(target=native, args=(b"x" * 20_000_000, times))
    thread.start()
    for turn in range(20):
        timed(times, first, 400_000)
        timed(times, second, 200_000)
        timed(times, collected)
        time.sleep(0.01)
    thread.join()
    child = os.fork()
    if child == 0:
        forked(4_000_000)
        os._exit(0)
    os.waitpid(child, 0)
    spent, window = time.process_time_ns() - spent, (begin, time.monotonic_ns())
    with open(sys.argv[1], "w") as file:
        json.dump({"pid": os.getpid(), "child": child, "times": times, "process": time.process_time_ns(),
                   "window": window, "spent": spent}, file)


main()
os._exit(0)
