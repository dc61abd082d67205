"""Training that waits for its workers; writes the time of its steps, in ns, to the file given.

    slow_loader.py WORKERS FETCH_MS TRUTH.json

Each batch takes a worker FETCH_MS in `fetch`, asleep as for a connection, and training 10 ms in `compute`.
"""

import gc
import json
import multiprocessing
import sys
import time

STEPS = 200
COMPUTE_S = 0.01


def fetch(seconds):
    time.sleep(seconds)


def work(indices, batches, seconds):
    for _ in iter(indices.get, None):
        fetch(seconds)
        batches.put(bytes(10))


def compute():
    time.sleep(COMPUTE_S)


def step(indices, batches):
    batches.get()
    compute()
    indices.put(0)


def main():
    workers, seconds = int(sys.argv[1]), float(sys.argv[2]) / 1000
    context = multiprocessing.get_context("fork")
    indices, batches = context.Queue(), context.Queue()
    processes = [context.Process(target=work, args=(indices, batches, seconds)) for _ in range(workers)]
    for process in processes:
        process.start()
    for _ in range(2 * workers):
        indices.put(0)
    gc.collect()
    start = time.monotonic_ns()
    for _ in range(STEPS):
        step(indices, batches)
    elapsed = time.monotonic_ns() - start
    for _ in processes:
        indices.put(None)
    for process in processes:
        process.join()
    with open(sys.argv[3], "w") as file:
        json.dump({"training": elapsed}, file)


main()
