"""A GPU that idles for known reasons, one after the other in each step; writes the time of each to a file: of `fetch`
that off the CPU, of the others that on it, and what they took.

    idle_host.py LIBRARIES TRUTH.json

A kernel of 3 ms, of which the host waits for the end; then 6 ms for a queue that another thread feeds, 4 ms of
Python in `augment`, 2 ms of Python in `log`.
"""

import json
import os
import queue
import sys
import threading
import time

import simgpu_kernel

STEPS = 120
libraries, truth = sys.argv[1:3]
runtime, gemm = simgpu_kernel.load(libraries)
times, took = {}, {}


def off_cpu():
    return time.monotonic_ns() - time.thread_time_ns()


def timed(clock, function, *arguments):
    name, start, began = function.__name__, clock(), time.monotonic_ns()
    function(*arguments)
    times[name] = times.get(name, 0) + clock() - start
    took[name] = took.get(name, 0) + time.monotonic_ns() - began


def burn(seconds):
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        count += 1
    return count


def augment():
    burn(0.004)


def log():
    burn(0.002)


def fetch(batches):
    batches.get()


def step(requests, batches):
    runtime.cudaLaunchKernel(*gemm)
    runtime.cudaDeviceSynchronize()
    requests.put(1)
    timed(off_cpu, fetch, batches)
    timed(time.thread_time_ns, augment)
    timed(time.thread_time_ns, log)


def load(requests, batches):
    while requests.get():
        time.sleep(0.006)
        batches.put(1)


requests, batches = queue.Queue(), queue.Queue()
loader = threading.Thread(target=load, args=(requests, batches))
loader.start()
for _ in range(STEPS):
    step(requests, batches)
requests.put(0)
loader.join()
with open(truth, "w") as file:
    json.dump({"pid": os.getpid(), "steps": STEPS, "times": times, "took": took}, file)
