"""The cost of collections for the CPU, by getrusage(2): faults, switches, migrations.

    counters.py TRUTH.json       runs itself as a child, waits for it with wait4(2)
    counters.py TRUTH.json work  the child

Each collection of the child frees one object whose finalizer has a known effect. The rusage of the
thread is taken last in the callback before and first in the one after (until 3.12 around the
collector's function, from 3.13 on inside it). TRUTH.json.wait4 contains the kernel's counts of the
whole child. Standard library only; 3.8 to 3.15.
"""

import gc
import json
import mmap
import os
import resource
import subprocess
import sys
import threading
import time

PAGE = mmap.PAGESIZE
SLEEPS = 20
COLLECTIONS = []
OPEN = {}


def usage(who):
    used = resource.getrusage(who)
    return {
        "page_faults": used.ru_minflt + used.ru_majflt,
        "major_faults": used.ru_majflt,
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "cpu_us": round((used.ru_utime + used.ru_stime) * 1e6),
    }


def callback(phase, info):
    thread = threading.get_native_id()
    if phase == "start":
        entry = OPEN[thread] = {"tid": thread, "start_ns": time.monotonic_ns()}
        entry["before"] = usage(resource.RUSAGE_THREAD)
    else:
        after = usage(resource.RUSAGE_THREAD)
        entry = OPEN.pop(thread)
        before = entry.pop("before")
        entry["used"] = {name: after[name] - before[name] for name in after}
        entry["stop_ns"] = time.monotonic_ns()
        COLLECTIONS.append(entry)


class Finalized:
    """Garbage that performs an action when it is collected."""

    def __init__(self, action):
        self.action = action
        self.itself = self

    def __del__(self):
        self.action()


def collect(name, action, **expected):
    """One collection that performs `action`, and what the kernel must have counted."""
    Finalized(action)
    gc.collect()
    COLLECTIONS[-1].update(name=name, expected=expected)


def fresh_pages(count):
    """Touches new pages; the mapping stays, so that none is reused."""
    memory = mmap.mmap(-1, count * PAGE)
    if hasattr(memory, "madvise"):
        memory.madvise(14)  # MADV_NOHUGEPAGE: a fault for each page
    for page in range(count):
        memory[page * PAGE] = 1
    KEPT.append(memory)


KEPT = []


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def hop(times):
    """Migrates from CPU to CPU, and works on each."""
    allowed = os.sched_getaffinity(0)
    cpus = sorted(allowed)[:2]
    for turn in range(times):
        os.sched_setaffinity(0, {cpus[turn % 2]})
        spin(0.002)
    os.sched_setaffinity(0, allowed)


def from_disk(path, count):
    """Touches pages of a file that are not in memory: a major fault for each."""
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), count * PAGE)
        memory.madvise(mmap.MADV_RANDOM)
        KEPT.append(memory)

        def touch():
            total = 0
            for page in range(count):
                total += memory[page * PAGE]

        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        collect("from disk", touch)


def work(path):
    gc.disable()
    gc.collect()
    gc.callbacks.append(callback)
    collect("nothing", lambda: None, page_faults=0)
    for count in (100, 1000):
        collect("pages", lambda: fresh_pages(count), page_faults=count)
    fresh_pages(3000)  # outside of any collection
    collect("sleeps", lambda: [time.sleep(0.001) for _ in range(SLEEPS)], context_switches=SLEEPS)
    if len(os.sched_getaffinity(0)) > 1:
        hops = 10
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[1]})
        os.sched_setaffinity(0, ALL_CPUS)
        collect("hops", lambda: hop(hops), cpu_migrations=hops)
    if hasattr(mmap, "MADV_RANDOM"):
        file = path + ".mapped"
        with open(file, "wb") as mapped:
            mapped.write(os.urandom(200 * PAGE))
            mapped.flush()
            os.fsync(mapped.fileno())
        from_disk(file, 200)
    # Threads that compete for the CPUs, some of them during a collection, and then exit.
    threads = [threading.Thread(target=spin, args=(0.05,)) for _ in range(4)]
    threads += [threading.Thread(target=fresh_pages, args=(500,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    collect("contended", lambda: spin(0.05))
    for thread in threads:
        thread.join()
    truth = {"pid": os.getpid(), "version": sys.version, "collections": COLLECTIONS,
             "process": usage(resource.RUSAGE_SELF)}
    with open(path, "w") as file:
        json.dump(truth, file)
    os._exit(0)


ALL_CPUS = os.sched_getaffinity(0)

if len(sys.argv) > 2:
    work(sys.argv[1])
child = subprocess.Popen([sys.executable, os.path.abspath(__file__), sys.argv[1], "work"])
_, status, used = os.wait4(child.pid, 0)
child.returncode = status
with open(sys.argv[1] + ".wait4", "w") as file:
    json.dump({
        "pid": child.pid, "status": status,
        "page_faults": used.ru_minflt + used.ru_majflt,
        "major_faults": used.ru_majflt,
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "cpu_us": round((used.ru_utime + used.ru_stime) * 1e6),
    }, file)
