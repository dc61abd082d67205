"""Marks of the programs beside this file, and one remedy where VERDICT_REMEDY names it: tests/verdict/matrix.py.

A program calls `loaded()` where its set-up ends, before it forks, and `step()` after each unit of work. Both do
nothing unless VERDICT_TRUTH names a folder: then each process that imports this module, and its forked children, write
there at exit what their collections cost.

VERDICT_REMEDY: none; off (no automatic collection); threshold=A,B,C; freeze (collect and freeze when loaded);
loading (off until loaded, then frozen and on); plan=N (off when loaded, collect every N steps); no-explicit
(gc.collect() does nothing); as many of these as wanted, with + between them.
"""

import atexit
import gc
import json
import os
import time

_folder = os.environ.get("VERDICT_TRUTH")
_remedies = dict(part.partition("=")[::2] for part in os.environ.get("VERDICT_REMEDY", "none").split("+"))
_collect = gc.collect
_begun = [0]
# CPU time in ns and number of collections, before and after loaded().
_costs = [[0, 0], [0, 0]]
_state = {"loaded": 0, "steps": 0, "cpu_loaded_ns": None, "longest_ns": 0}


def step():
    """One unit of work is done."""
    if _folder is None:
        return
    _state["steps"] += 1
    every = int(_remedies.get("plan") or 0)
    if every and _state["steps"] % every == 0:
        _collect()


def loaded():
    """The set-up is done."""
    if _folder is None or _state["loaded"]:
        return
    if "freeze" in _remedies or "loading" in _remedies:
        if "loading" not in _remedies:
            _collect()
        gc.freeze()
    if "loading" in _remedies:
        gc.enable()
    if "plan" in _remedies:
        gc.disable()
    _state["loaded"] = 1
    _state["cpu_loaded_ns"] = time.process_time_ns()


def _watch(phase, info):
    if phase == "start":
        _begun[0] = time.thread_time_ns()
    else:
        took = time.thread_time_ns() - _begun[0]
        cost = _costs[_state["loaded"]]
        cost[0] += took
        cost[1] += 1
        _state["longest_ns"] = max(_state["longest_ns"], took)


def _write():
    text = json.dumps({"pid": os.getpid(), "before": _costs[0], "after": _costs[1], **_state})
    with open(os.path.join(_folder, "%d.json" % os.getpid()), "w") as file:
        file.write(text)


def _forked(_=None):
    """A child begins with nothing of its own, and ends without atexit: multiprocessing calls os._exit()."""
    _costs[:] = [[0, 0], [0, 0]]
    _state.update(longest_ns=0, steps=0)
    multiprocessing.util.Finalize(None, _write, exitpriority=0)


if _folder is not None:
    import multiprocessing.util

    if "threshold" in _remedies:
        gc.set_threshold(*map(int, _remedies["threshold"].split(",")))
    if "off" in _remedies or "loading" in _remedies:
        gc.disable()
    if "no-explicit" in _remedies:
        gc.collect = lambda generation=2: 0
    gc.callbacks.append(_watch)
    atexit.register(_write)
    multiprocessing.util.register_after_fork(_forked, _forked)
