"""Marks of the programs beside this file, and remedies where VERDICT_REMEDY names them: tests/verdict/matrix.py.

A program calls `loaded()` where its set-up ends, before it forks, and `step()` after each unit of work; `fixed(NAME)`
asks whether it is to run without its cycles. With VERDICT_TRUTH, a folder, each process that imports this module, and
its forked children, write there at exit what their collections cost.

VERDICT_REMEDY, as many of these as wanted with commas between them: none; disable@start; disable (when loaded);
threshold=A,B,C; freeze (collect and freeze when loaded); freeze-forks (off until loaded, then frozen, on in children);
exit-freeze (freeze at exit); no-explicit (gc.collect() does nothing); fix=NAME (a change of the program).
"""

import atexit
import gc
import os
import time

_folder = os.environ.get("VERDICT_TRUTH")
_remedies = {}
_collect = gc.collect
_begun = [0, False]
_state = {"loaded": False, "steps": 0}


def _zero():
    # CPU time in ns; objects freed; number of collections, of those that freed nothing, and of full ones.
    names = "before_ns after_ns explicit_ns own_ns empty_ns full_ns longest_ns freed collections empty full"
    _state.update(dict.fromkeys(names.split(), 0))


def _parse(text):
    name = ""
    for part in text.split(","):
        if part.isdigit():
            _remedies[name] += "," + part
        else:
            name, _, value = part.partition("=")
            _remedies[name] = value


def fixed(name):
    """Whether the program is to run with this change."""
    return _remedies.get("fix") == name


def step():
    """One unit of work is done."""
    _state["steps"] += 1


def loaded():
    """The set-up is done."""
    if _state["loaded"]:
        return
    if "freeze" in _remedies:
        _begun[1] = "own_ns"
        _collect()
        _begun[1] = False
    if "freeze" in _remedies or "freeze-forks" in _remedies:
        gc.freeze()
    if "disable" in _remedies:
        gc.disable()
    _state["loaded"] = True


def _explicit(generation=2):
    if "no-explicit" in _remedies:
        return 0
    _begun[1] = "explicit_ns"
    freed = _collect(generation)
    _begun[1] = False
    return freed


def _watch(phase, info):
    if phase == "start":
        _begun[0] = time.thread_time_ns()
        return
    took = time.thread_time_ns() - _begun[0]
    state = _state
    state["after_ns" if state["loaded"] else "before_ns"] += took
    state["collections"] += 1
    state["freed"] += info["collected"]
    state["longest_ns"] = max(state["longest_ns"], took)
    if not info["collected"]:
        state["empty"] += 1
        state["empty_ns"] += took
    if info["generation"] == 2:
        state["full"] += 1
        state["full_ns"] += took
    if _begun[1]:
        state[_begun[1]] += took


def _write():
    import json

    with open("/proc/self/status") as file:
        _state["hwm_kib"] = int(next(line for line in file if line.startswith("VmHWM")).split()[1])
    _state["cpu_ns"] = time.process_time_ns()
    with open(os.path.join(_folder, "%d.json" % os.getpid()), "w") as file:
        json.dump(_state, file)


def _forked(_=None):
    """A child begins with nothing of its own, and ends without atexit: multiprocessing calls os._exit()."""
    _zero()
    multiprocessing.util.Finalize(None, _write, exitpriority=0)


def _in_child():
    if "freeze-forks" in _remedies:
        gc.enable()


_parse(os.environ.get("VERDICT_REMEDY", "none"))
_zero()
if "threshold" in _remedies:
    gc.set_threshold(*map(int, _remedies["threshold"].split(",")))
if "disable@start" in _remedies or "freeze-forks" in _remedies:
    gc.disable()
if _folder is not None:
    import multiprocessing.util

    gc.collect = _explicit
    gc.callbacks.append(_watch)
    # The first to be registered is the last to run.
    atexit.register(_write)
    multiprocessing.util.register_after_fork(_forked, _forked)
if "exit-freeze" in _remedies:
    atexit.register(gc.freeze)
os.register_at_fork(after_in_child=_in_child)
