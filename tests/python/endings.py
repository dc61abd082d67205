"""Processes that end in every way, each after a known number of collections.

    endings.py FOLDER

Children by fork, by spawn (another interpreter) and by exec, and the workers of a multiprocessing
pool that is terminated while they work. Each writes FOLDER/PID.json before it ends: `base` is
gc.get_stats() at its own start, `since_ns` the time of that, `stats` gc.get_stats() right before
the end.
"""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

from recorder import garbage
from recorder import hold_automatic

WAYS = ("return", "_exit", "SIGTERM", "SIGKILL", "exception")


def write(folder, since_ns, base, way):
    truth = {"pid": os.getpid(), "since_ns": since_ns, "base": base, "end": way,
             "until_ns": time.monotonic_ns(), "stats": gc.get_stats()}
    path = os.path.join(folder, "%d.json" % os.getpid())
    # A process that is terminated while it writes leaves no partial file in the folder.
    draft = "%s.%d" % (folder, os.getpid())
    with open(draft, "w") as file:
        json.dump(truth, file)
    os.rename(draft, path)


def live(folder, way, number):
    hold_automatic()
    base, since_ns = gc.get_stats(), time.monotonic_ns()
    for turn in range(5 + number):
        garbage(50)
        gc.collect((number + turn) % 3)
    write(folder, since_ns, base, way)
    if way == "_exit":
        os._exit(0)
    if way.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, way))
        time.sleep(60)
    if way == "exception":
        raise SystemExit(3)


def work_for_ever(folder):
    """A pool's worker, which is terminated during it: its file is from its last round."""
    hold_automatic()
    base, since_ns = gc.get_stats(), time.monotonic_ns()
    while True:
        for generation in range(3):
            garbage(20)
            gc.collect(generation)
        write(folder, since_ns, base, "terminated")


def main():
    if len(sys.argv) > 2:
        return live(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    folder = sys.argv[1]
    for number, way in enumerate(WAYS):
        pid = os.fork()
        if not pid:
            live(folder, way, number)
            os._exit(0)
        os.waitpid(pid, 0)
        subprocess.run([sys.executable, __file__, folder, way, str(number)])
        child = multiprocessing.get_context("spawn").Process(target=live, args=(folder, way, number))
        child.start()
        child.join()
    pool = multiprocessing.get_context("fork").Pool(3)
    pool.map_async(work_for_ever, [folder] * 3, chunksize=1)
    time.sleep(1)
    pool.terminate()
    pool.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
