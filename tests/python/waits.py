"""What the main thread waits for, and what a child does meanwhile: writes its own times to the file given.

Each function waits for one reason, some 20 ms at a time; the GIL's is a busy thread in Python. The times are those off
the CPU, in ns: what a call took, without the CPU time of its thread. A busy machine makes both longer alike.
"""

import json
import multiprocessing
import os
import select
import subprocess
import sys
import threading
import time

TURNS = 30
times = {}


def off_cpu():
    return time.monotonic_ns() - time.thread_time_ns()


def timed(function, *arguments):
    start = off_cpu()
    for _ in range(TURNS):
        function(*arguments)
    times[function.__name__] = times.get(function.__name__, 0) + off_cpu() - start


def burn(seconds):
    end = time.thread_time() + seconds
    count = 0
    while time.thread_time() < end:
        count += 1
    return count


def sleeps():
    time.sleep(0.02)


def locks(lock):
    lock.acquire(timeout=0.02)


def polls(pipe):
    select.select([pipe], [], [], 0.02)


def ends():
    subprocess.run(["sleep", "0.02"], check=True)


def contends():
    burn(0.02)


def decode():
    burn(0.015)


def fetch():
    time.sleep(0.005)


def work(queue, times):
    spent = [0, 0]
    for i in range(TURNS):
        for at, function in enumerate((decode, fetch)):
            start = off_cpu()
            function()
            spent[at] += off_cpu() - start
        queue.put(i)
    times.put((os.getpid(), spent))


def takes(queue):
    queue.get()


def main():
    read, write = os.pipe()
    lock = threading.Lock()
    lock.acquire()
    timed(sleeps)
    timed(locks, lock)
    timed(polls, read)
    timed(ends)
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            burn(0.01)

    busy = threading.Thread(target=spin)
    busy.start()
    timed(contends)
    stop.set()
    busy.join()
    os.close(write)
    context = multiprocessing.get_context("fork")
    queue, measured = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(queue, measured))
    worker.start()
    timed(takes, queue)
    pid, (decoding, fetching) = measured.get()
    worker.join()
    with open(sys.argv[1], "w") as file:
        json.dump({"pid": os.getpid(), "times": times, "worker": pid, "decode": decoding, "fetch": fetching}, file)


main()
