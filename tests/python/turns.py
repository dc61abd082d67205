"""Loops that log their own turns, and causes of long ones, planted one after the other: turns.py OUTPUT.

Written to OUTPUT by kind of loop, `asyncio`, `selector`, `poll`, `pool` and `threads`: `lengths`, of each turn in ns,
from the return of a wait to the next one, in the last two of each piece of work; `planted`, by cause the start, in ns of CLOCK_MONOTONIC, the length of each, how long it waited for a lock, and the thread.
"""

import asyncio
import concurrent.futures
import gc
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time

OUTPUT = sys.argv[1]
KIND = sys.argv[2] if len(sys.argv) > 2 else "all"
ROUNDS = 6
# in-process, a thread has a loop from its second wait on
UNTIL_SEEN = 6
now = time.monotonic_ns
gc.disable()
HELD = [{i: [i]} for i in range(60_000)]
LENGTHS = []
PLANTED = {}
LOCK = threading.Lock()


class Logging:
    """Logs what the loop did from the return of a wait to the next."""

    began = None

    def select(self, timeout=None):
        if Logging.began is not None:
            LENGTHS.append(now() - Logging.began)
        ready = super().select(timeout)
        Logging.began = now()
        return ready


class LoggingSelector(Logging, selectors.EpollSelector):
    pass


class LoggingPoll(Logging, selectors.PollSelector):
    pass


def collects():
    gc.collect()


def computes():
    end = time.thread_time_ns() + 30_000_000
    while time.thread_time_ns() < end:
        pass


def sleeps():
    time.sleep(0.03)


def sleeps_often():
    for _ in range(60):
        time.sleep(0.0004)


def locks():
    held = threading.Event()

    def hold():
        with LOCK:
            held.set()
            time.sleep(0.03)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    start = now()
    with LOCK:
        waited = now() - start
    holder.join()
    return waited


def mixes():
    computes()
    sleeps()
    collects()


CAUSES = [collects, computes, sleeps, sleeps_often, locks, mixes]


def plant(cause):
    start = now()
    waited = cause()
    planted = (start, now() - start, waited, threading.get_native_id())
    PLANTED.setdefault(cause.__name__, []).append(planted)


async def on_asyncio():
    loop = asyncio.get_running_loop()
    # gctrace sees looks soon after the first wait
    await asyncio.sleep(0.5)
    for _ in range(ROUNDS):
        for cause in CAUSES:
            # callbacks that are ready: the loop looks, and does not wait
            for _ in range(20):
                await asyncio.sleep(0)
            await asyncio.sleep(0.002)
            loop.call_soon(plant, cause)
            await asyncio.sleep(0.002)


def on_selector(made, is_made_once):
    """A server in a loop of its own; a thread sends it requests. multiprocessing.connection.wait() polls with another
    array each time."""
    ours, theirs = socket.socketpair()

    def new():
        selector = made()
        selector.register(ours, selectors.EVENT_READ)
        return selector

    selector = new()
    count = UNTIL_SEEN + ROUNDS * len(CAUSES)
    taken = threading.Semaphore(0)

    def send():
        # turns count from the first wait on
        time.sleep(0.2)
        for _ in range(count):
            theirs.send(b"x")
            taken.acquire()
            time.sleep(0.003)

    threading.Thread(target=send).start()
    others = []
    for at in range(count):
        if not is_made_once:
            # kept, so that no array is at the same address
            others.append(selector)
            selector = new()
        selector.select()
        ours.recv(1)
        if at >= UNTIL_SEEN:
            plant(CAUSES[at % len(CAUSES)])
        taken.release()
    selector.select(0)


def work(cause):
    start = now()
    if cause:
        plant(cause)
    LENGTHS.append(now() - start)


def on_threads():
    """A thread for each piece of work, as in socketserver.ThreadingMixIn."""
    # an interpreter that is still starting is looked at again after 100 ms
    time.sleep(0.3)
    for cause in ROUNDS * CAUSES:
        worker = threading.Thread(target=work, args=(cause,))
        worker.start()
        worker.join()
        time.sleep(0.003)


def on_pool():
    """A pool of threads, as of a server whose handlers block."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # a place counts once gctrace knows the stack of its first wait
        for _ in range(UNTIL_SEEN):
            for handed in [pool.submit(work, None) for _ in range(2)]:
                handed.result()
            time.sleep(0.1)
        for cause in ROUNDS * CAUSES:
            pool.submit(work, cause).result()
            time.sleep(0.003)


if KIND == "asyncio":
    event_loop = asyncio.SelectorEventLoop(LoggingSelector())
    event_loop.run_until_complete(on_asyncio())
elif KIND == "selector":
    on_selector(LoggingSelector, True)
elif KIND == "poll":
    on_selector(LoggingPoll, False)
elif KIND == "pool":
    on_pool()
elif KIND == "threads":
    on_threads()
if KIND == "all":
    logs = {}
    for kind in ["asyncio", "selector", "poll", "pool", "threads"]:
        own = OUTPUT + "." + kind
        subprocess.run([sys.executable, __file__, own, kind], check=True)
        with open(own, encoding="utf-8") as file:
            logs[kind] = json.load(file)
else:
    logs = {"pid": os.getpid(), "lengths": LENGTHS, "planted": PLANTED}
with open(OUTPUT, "w", encoding="utf-8") as file:
    json.dump(logs, file)
