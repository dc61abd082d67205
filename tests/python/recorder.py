"""The truth about the collections of this process, recorded in-process.

Every script here that needs it uses one Recorder, which registers in gc.callbacks and at the very
end reads gc.get_stats(). Standard library only; runs on CPython 3.8 to 3.15, with and without the
GIL. Independent of gctrace.

How the callbacks relate to the collector's function:
 * Until 3.12 the callbacks run around the function, so the function begins after
   `start_ns` and ends before `stop_ns`. From 3.13 they run inside it: the function
   begins before `start_ns` and ends after `stop_ns`.
 * No callback runs for a call that does nothing because a collection is already running, and none
   for the collections during finalization: those are the excess in `stats`.
 * 3.14.0 to 3.14.4 (incremental): the callbacks are the truth. `stats` misses the increments that
   only marked.
"""

import gc
import json
import os
import sys
import threading
import time

MANUAL = threading.local()


def collect(generation=2):
    """gc.collect(), labeled as manual in this thread's truth."""
    MANUAL.armed = True
    found = gc.collect(generation)
    MANUAL.armed = False
    return found


def collect_by_c_api():
    """PyGC_Collect(), labeled as manual."""
    import ctypes

    function = ctypes.pythonapi.PyGC_Collect
    MANUAL.armed = True
    function()
    MANUAL.armed = False


def garbage(count):
    """Leaves `count` unreachable cycles behind."""
    for _ in range(count):
        cycle = []
        cycle.append(cycle)


def hold_automatic():
    """Prevents automatic collections from here on. Unlike gc.disable() this keeps the interpreter's
    collections at exit."""
    gc.set_threshold(1 << 30, 1 << 30, 1 << 30)


# Number of frames recorded of a stack: one more than gctrace records by default.
STACK_DEPTH = 25


def stack(frame):
    """File, function and line of a frame and its callers, innermost first."""
    frames = []
    while frame and len(frames) < STACK_DEPTH:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append((code.co_filename, name, frame.f_lineno))
        frame = frame.f_back
    return frames


def stats_at():
    """gc.get_stats() and a time at which they were these: reading them allocates, which may start a
    collection between the two."""
    while True:
        before = [dict(entry) for entry in gc.get_stats()]
        now = time.monotonic_ns()
        if gc.get_stats() == before:
            return before, now


class Recorder:
    """Records from install() on; `stacks`: also where each collection started. `base` is
    gc.get_stats() at its creation: a process or interpreter starts at 0, a forked child at its
    parent's values."""

    def __init__(self, interpreter=0, stacks=False):
        self.interpreter = interpreter
        self.stacks = stacks
        self.collections = []
        self.open = {}
        self.base, self.made_ns = stats_at()
        self.sections = {}
        self.section = None

    def install(self):
        gc.callbacks.append(self.callback)
        return self

    def callback(self, phase, info, _now=time.monotonic_ns, _cpu=time.thread_time_ns,
                 _thread=threading.get_native_id, _pid=os.getpid):
        now = _now()
        count = gc.get_count()[0]
        thread = _thread()
        if phase == "start":
            manual = getattr(MANUAL, "armed", False)
            MANUAL.armed = False  # the first collection after arming is the manual one
            self.open[thread] = {
                "pid": _pid(), "tid": thread, "generation": info["generation"],
                "reason": "manual" if manual else "automatic", "section": self.section,
                "interpreter": self.interpreter, "start_ns": now, "start_cpu_ns": _cpu(),
                "count": count,
            }
            if self.stacks:
                self.open[thread]["stack"] = stack(sys._getframe().f_back)
            self.open[thread]["count_after"] = gc.get_count()[0]
        else:
            # A child forked in the middle of a collection has another thread id.
            entry = self.open.pop(thread, None) or {"inherited": True, "pid": _pid(), "tid": thread,
                                                    "generation": info["generation"]}
            entry.update(collected=info["collected"], uncollectable=info["uncollectable"],
                         stop_ns=now, stop_cpu_ns=_cpu())
            self.collections.append(entry)

    def after_fork(self):
        """In a forked child: forgets the parent's records."""
        self.collections = []
        self.open = {}
        self.base = [dict(entry) for entry in gc.get_stats()]

    def run(self, name, function):
        """Runs a section; one that cannot run here is skipped with the reason."""
        self.section = name
        try:
            function()
            self.sections[name] = "run"
        except (ImportError, NotImplementedError) as error:
            self.sections[name] = "skipped: %s" % error
        self.section = None

    def finish(self, path, **extra):
        """Writes the truth. Nothing may be collected between this and the exit."""
        hold_automatic()
        truth = {
            "version": "%d.%d.%d" % sys.version_info[:3],
            "free_threaded": "t" in getattr(sys, "abiflags", ""),
            "executable": sys.executable, "pid": os.getpid(), "ppid": os.getppid(),
            "made_ns": self.made_ns, "finished_ns": time.monotonic_ns(),
            "interpreter": self.interpreter, "sections": self.sections,
            "base": self.base, "collections": list(self.collections),
        }
        truth.update(extra)
        del extra
        truth["stats"] = [dict(entry) for entry in gc.get_stats()]
        text = json.dumps(truth)
        temporary = "%s.%d" % (path, os.getpid())
        with open(temporary, "w") as file:
            file.write(text)
        os.rename(temporary, path)
