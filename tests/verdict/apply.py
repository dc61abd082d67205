#!/usr/bin/env python3
"""Runs a program with one remedy applied and writes what its collections cost.

    apply.py --log FILE --mark MODULE:NAME [--at STEP] [--threshold A,B,C | --freeze | --every-steps N | --every-s S
             | --no-explicit] [--gen GENERATION] PROGRAM [ARGUMENT...]

The program itself is unchanged. A call of the function MODULE:NAME (dotted names allowed) is one step; the remedy is
applied at step --at (0: at the start). The log has one list per collection: step, generation, CPU time in ns, time of
its start on CLOCK_MONOTONIC in ns, length in ns, reason known (1: requested here); and one per step: its time.
"""

import argparse
import functools
import gc
import importlib
import json
import pathlib
import resource
import runpy
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--mark", default="progress:step")
parser.add_argument("--at", type=int, default=0)
parser.add_argument("--threshold")
parser.add_argument("--freeze", action="store_true")
parser.add_argument("--every-steps", type=int)
parser.add_argument("--every-s", type=float)
parser.add_argument("--no-explicit", action="store_true")
parser.add_argument("--gen", type=int, default=2)
parser.add_argument("program")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
options = parser.parse_args()

collect, collections, steps, begun = gc.collect, [], [], [0, 0]
due = [None]


def watch(phase, info):
    if phase == "start":
        begun[:] = time.monotonic_ns(), time.thread_time_ns()
    else:
        cpu_ns = time.thread_time_ns() - begun[1]
        collections.append((len(steps), info["generation"], cpu_ns, begun[0], time.monotonic_ns() - begun[0]))


def apply():
    if options.threshold:
        gc.set_threshold(*map(int, options.threshold.split(",")))
    if options.freeze:
        collect()
        gc.freeze()
    if options.every_steps or options.every_s:
        gc.disable()
        due[0] = len(steps) + options.every_steps if options.every_steps else time.monotonic() + options.every_s
    if options.no_explicit:
        gc.collect = lambda generation=2: 0


def stepped():
    if len(steps) == options.at:
        apply()
    steps.append(time.monotonic_ns())
    if options.every_steps and due[0] is not None and len(steps) >= due[0]:
        collect(options.gen)
        due[0] = len(steps) + options.every_steps
    if options.every_s and due[0] is not None and time.monotonic() >= due[0]:
        collect(options.gen)
        due[0] = time.monotonic() + options.every_s


def mark(name):
    """Counts the calls of a function that may be an attribute of a class."""
    module, _, path = name.partition(":")
    *owners, attribute = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    original = getattr(owner, attribute)

    @functools.wraps(original)
    def counted(*arguments, **named):
        stepped()
        return original(*arguments, **named)

    setattr(owner, attribute, counted)


sys.path.insert(0, str(pathlib.Path(options.program).resolve().parent))
sys.argv = [options.program, *options.arguments]
mark(options.mark)
gc.callbacks.append(watch)
if options.at == 0:
    apply()
try:
    runpy.run_path(options.program, run_name="__main__")
finally:
    gc.callbacks.remove(watch)
    log = {
        "steps": steps,
        "collections": collections,
        "ended_ns": time.monotonic_ns(),
        "max_rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "cpu_ns": time.process_time_ns(),
    }
    pathlib.Path(options.log).write_text(json.dumps(log))
