"""CPython's own collector counts, recorded by each process that imports this at its start.

On PYTHONPATH only in the runs of tests/programs. A line per event goes to $GCTRACE_TRUTH/PID.UID:
event, time before and after the reading (CLOCK_MONOTONIC, ns), then for each generation the
collections and the objects collected. Events: `start` of an interpreter, `fork` (in the child),
`exec`, `end`, and `now` where a program whose processes end without Python's knowledge calls `record`.
Changes nothing that a program can see, but for one function more in atexit.
"""

import os


def install(folder):
    import atexit
    import gc
    import time

    # Bound now: at the end, modules may be emptied before the last record.
    clock, stats = time.monotonic_ns, gc.get_stats
    getpid, getuid, opened, write, close = os.getpid, os.getuid, os.open, os.write, os.close
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

    def record(event):
        before = clock()
        counts = stats()
        after = clock()
        numbers = " ".join("%d %d" % (one["collections"], one["collected"]) for one in counts)
        try:
            file = opened("%s/%d.%d" % (folder, getpid(), getuid()), flags, 0o666)
        except OSError:
            return  # another root, a full disk: the last written record counts
        write(file, ("%s %d %d %s\n" % (event, before, after, numbers)).encode())
        close(file)

    def recorded_before(event, function):
        def wrapper(*args, **kwargs):
            record(event)
            return function(*args, **kwargs)

        wrapper.__name__ = function.__name__
        return wrapper

    os._exit = recorded_before("end", os._exit)
    os.execv = recorded_before("exec", os.execv)
    os.execve = recorded_before("exec", os.execve)
    os.register_at_fork(after_in_child=lambda: record("fork"))
    atexit.register(record, "end")
    record("start")
    return record


if os.environ.get("GCTRACE_TRUTH"):
    record = install(os.environ["GCTRACE_TRUTH"])
