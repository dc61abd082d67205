"""Runs a program whose collections cost a known CPU time, and notes what they cost.

    truth.py FILE PROGRAM ARGUMENTS...

Each collection spins for 20 us more, by the thread's CPU clock. At the end FILE has one line for each
first threshold that was in force: the threshold, steps (calls of train_step after the first 50), and
the CPU time of the collections in them, in ns, with what the callbacks here took.
"""

import gc
import importlib.util
import sys
from time import thread_time_ns

SPIN_NS = 20_000
WARM_UP = 50

steps = 0
sums = {}
began = 0


def collection(phase, _):
    global began
    if phase == "start":
        began = thread_time_ns()
        while thread_time_ns() < began + SPIN_NS:
            pass
    elif steps > WARM_UP:
        sums.setdefault(gc.get_threshold()[0], [0, 0])[1] += thread_time_ns() - began


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
