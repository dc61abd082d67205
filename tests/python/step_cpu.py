"""Works and sleeps in turns; prints the CPU time of its thread before each step, in ns.

    step_cpu.py [LIBRARY]

Steps are calls of `step`: with LIBRARY of its function that stands for torch's backward pass.
"""

import ctypes
import sys
import time


def step():
    pass


if len(sys.argv) > 1:
    step = getattr(ctypes.CDLL(sys.argv[1]), "_ZN5torch8autograd6Engine7executeEv")
marks = []
for turn in range(11):
    marks.append(time.thread_time_ns())
    step()
    if turn % 2:
        time.sleep(0.2)
    else:
        until = time.thread_time_ns() + 50_000_000
        while time.thread_time_ns() < until:
            pass
print(marks)
