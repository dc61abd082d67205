"""Runs a program of which it is known what it gains by another setting, and notes how much.

    truth.py FILE PROGRAM ARGUMENTS...

Each collection spins for 15 us, by the thread's CPU clock, while the first threshold is even. With an
odd one next to it the collector does the same work, and this callback reads the clock once, so that
the spinning is all of the difference: a much larger threshold would also change what the caches
contain. At the end FILE has one line for each
first threshold that was in force: the threshold, steps (calls of train_step after the first 50), and
the CPU time of the spinning in them, in ns.
"""

import gc
import importlib.util
import sys
from time import thread_time_ns

SPIN_NS = 15_000
WARM_UP = 50

steps = 0
sums = {}


def collection(phase, _):
    threshold = gc.get_threshold()[0]
    if phase != "start":
        return
    least = 0 if threshold % 2 else SPIN_NS
    began = thread_time_ns()
    spun = thread_time_ns() - began
    while spun < least:
        spun = thread_time_ns() - began
    if steps > WARM_UP:
        sums.setdefault(threshold, [0, 0])[1] += spun


output = sys.argv[1]
del sys.argv[:2]
spec = importlib.util.spec_from_file_location("program", sys.argv[0])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
train_step = program.train_step


def counted(*arguments, **named):
    global steps
    steps += 1
    if steps > WARM_UP:
        sums.setdefault(gc.get_threshold()[0], [0, 0])[0] += 1
    return train_step(*arguments, **named)


program.train_step = counted
gc.callbacks.append(collection)
program.main()
gc.callbacks.remove(collection)
with open(output, "w") as file:
    for threshold, (count, total_ns) in sums.items():
        print(threshold, count, total_ns, file=file)
