"""A burst of forks: many short processes, each with a known number of collections.

    storm.py FOLDER [--processes 200] [--at-once 40]

Every process writes FOLDER/PID.json before it ends: `explicit` counts its collections by generation
(all manual), `stats` and `base` are gc.get_stats() at its end and right before its fork. `exit` is
how it ended: by os._exit, which collects nothing more, or by a normal exit, which runs the
collections of shutdown. Every tenth process forks the next one itself, so that there are
grandchildren.
"""

import argparse
import gc
import json
import os
import sys

from recorder import garbage
from recorder import hold_automatic


def write(folder, truth):
    truth.update(pid=os.getpid(), ppid=os.getppid())
    truth["stats"] = gc.get_stats()
    path = os.path.join(folder, "%d.json" % os.getpid())
    with open(path, "w") as file:
        json.dump(truth, file)


def live(folder, number, base):
    """The whole life of child `number`, up to its end."""
    explicit = [0, 0, 0]
    for turn in range(1 + number % 7):
        garbage(50)
        generation = (number + turn) % 3
        gc.collect(generation)
        explicit[generation] += 1
    normal = number % 3 == 0
    write(folder, {"number": number, "explicit": explicit, "base": base,
                   "exit": "normal" if normal else "_exit"})
    if normal:
        sys.exit(0)
    os._exit(0)


def fork_child(folder, numbers):
    """Forks a child for the next number; returns its pid."""
    number = next(numbers)
    base = gc.get_stats()
    pid = os.fork()
    if pid:
        return pid
    if number % 10 == 9:
        following = number + 1_000_000  # a grandchild, not one of the counted ones
        inner = gc.get_stats()
        grandchild = os.fork()
        if not grandchild:
            live(folder, following, inner)
        os.waitpid(grandchild, 0)
    live(folder, number, base)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=40)
    options = parser.parse_args()

    os.makedirs(options.folder, exist_ok=True)
    hold_automatic()
    numbers = iter(range(options.processes))
    running, failed = 0, 0
    for _ in range(options.processes):
        if running == options.at_once:
            _, status = os.wait()
            failed += status != 0
            running -= 1
        fork_child(options.folder, numbers)
        running += 1
    for _ in range(running):
        _, status = os.wait()
        failed += status != 0
    write(options.folder, {"number": -1, "explicit": [0, 0, 0], "exit": "normal",
                           "base": [{"collections": 0}] * 3})
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
