"""Collections that gctrace reads late, or cannot keep: it is stopped while they run.

    unread.py FOLDER crowd N          N short processes, 40 at a time
    unread.py FOLDER collections N    N collections of this process
    unread.py FOLDER slow N           N collections, whose callbacks last longer than gctrace waits

`crowd` and `collections` stop their parent, which is to be gctrace, let it continue, and wait for it
to read: without that the end of the command would make it read everything. `slow` stops nothing.
FOLDER/PID.json of every process has the number of its `collections` by its own count until
`until_ns`; then it ends by _exit, which collects nothing more.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import time

AT_ONCE = 40
# Longer than gctrace waits for a record, in seconds.
LONG = 3


# A short process. Imports nothing that is not built in: its few stacks fit into gctrace's ring.
LEAF = """
import gc, posix, time
cycle = []
cycle.append(cycle)
del cycle
gc.collect()
gc.disable()
print(posix.getpid(), sum(entry["collections"] for entry in gc.get_stats()), time.monotonic_ns(), flush=True)
posix._exit(0)
"""


def write(folder, pid, collections, until_ns):
    with open(os.path.join(folder, "%d.json" % pid), "w") as file:
        json.dump({"pid": pid, "collections": collections, "until_ns": until_ns}, file)


def crowd(folder, number):
    running = []

    def finish():
        write(folder, *map(int, running.pop(0).communicate()[0].split()))

    for _ in range(number):
        if len(running) == AT_ONCE:
            finish()
        running.append(subprocess.Popen([sys.executable, "-S", "-E", "-c", LEAF], stdout=subprocess.PIPE))
    while running:
        finish()


def collections(_folder, number):
    for _ in range(number):
        gc.collect(0)


def slow(_folder, number):
    def first(phase, _info):
        if phase == "stop":
            time.sleep(LONG)

    gc.collect()
    # Until 3.12 the collector's function has returned by then, and gctrace's entry is called next.
    gc.callbacks.insert(0, first)
    for _ in range(number):
        gc.collect()
    gc.callbacks.remove(first)
    time.sleep(LONG)


def main():
    folder, what, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    # Before it may be stopped, gctrace examines the program that the children run.
    crowd(folder, 1)
    if what == "slow":
        slow(folder, number)
    else:
        gctrace = os.getppid()
        os.kill(gctrace, signal.SIGSTOP)
        {"crowd": crowd, "collections": collections}[what](folder, number)
        os.kill(gctrace, signal.SIGCONT)
        time.sleep(LONG)
    gc.disable()
    write(folder, os.getpid(), sum(entry["collections"] for entry in gc.get_stats()), time.monotonic_ns())
    os._exit(0)


if __name__ == "__main__":
    main()
