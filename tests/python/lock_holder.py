"""Steps that wait for a lock which another thread has while it sleeps; writes for how long they waited, in ns.

    lock_holder.py HELD_MS TRUTH.json

A third thread sleeps and has nothing to do with the lock.
"""

import json
import sys
import threading
import time

STEPS = 150
PAUSE_S = 0.005


def write(lock, seconds):
    while True:
        with lock:
            time.sleep(seconds)
        time.sleep(PAUSE_S)


def idle():
    while True:
        time.sleep(0.03)


def step(lock):
    time.sleep(PAUSE_S)
    start = time.monotonic_ns()
    with lock:
        return time.monotonic_ns() - start


def main():
    lock, seconds = threading.Lock(), float(sys.argv[1]) / 1000
    threading.Thread(target=write, args=(lock, seconds), daemon=True).start()
    threading.Thread(target=idle, daemon=True).start()
    waited = sum(step(lock) for _ in range(STEPS))
    with open(sys.argv[2], "w") as truth:
        json.dump({"waited": waited}, truth)


main()
