"""A program for rounds of chaos: the same output every time, and the truth about its collections.

    victim.py FOLDER [--steps 20] [--pace 0.02] [--children N] [--forks N] [--copies N] [--threads N]
                     [--collections N] [--kept N] [--crowd N [--whole]] [--log] [--deaf] [--exit 37]

Prints a line for each step; the last has a digest of its children's output and exit codes. Every
process writes FOLDER/PID.json before its end: `collections` is their number from `start_ns` to
`end_ns` (CLOCK_MONOTONIC) by the interpreter's own count, `all` since its start. Ends by os._exit,
after which nothing is collected. Standard library only; independent of gctrace.
"""

import argparse
import gc
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

THRESHOLDS = (700, 10, 10)


def count():
    return sum(entry["collections"] for entry in gc.get_stats())


def hold_automatic():
    gc.set_threshold(1 << 30, 1 << 30, 1 << 30)


def garbage(number):
    for _ in range(number):
        cycle = []
        cycle.append(cycle)


class Truth:
    """Number of collections of this process from now to `write`."""

    def __init__(self, folder, log):
        hold_automatic()
        self.folder, self.log = folder, [] if log else None
        if log:
            gc.callbacks.append(self.note)
        self.base, self.start_ns = count(), time.monotonic_ns()
        gc.set_threshold(*THRESHOLDS)

    def note(self, phase, _info, now=time.monotonic_ns):
        self.log.append((phase == "stop", now()))

    def write(self):
        hold_automatic()
        truth = {"pid": os.getpid(), "start_ns": self.start_ns, "all": count(),
                 "collections": count() - self.base, "end_ns": time.monotonic_ns(), "log": self.log}
        path = os.path.join(self.folder, "%d.json" % os.getpid())
        with open(path + ".new", "w") as file:
            json.dump(truth, file)
        os.rename(path + ".new", path)


def leaf(folder, number):
    """The work of a child."""
    truth = Truth(folder, False)
    garbage(2000 + 100 * number)
    gc.collect()
    truth.write()


def forked(folder, number):
    pid = os.fork()
    if not pid:
        leaf(folder, number)
        os._exit(number % 5)
    return os.waitpid(pid, 0)[1]


def child(folder, number):
    command = [sys.executable, os.path.abspath(__file__), folder, "--leaf", str(number)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return "%d %s" % (done.returncode, done.stdout.decode())


def copied(folder, number):
    """A program that is new to gctrace, because it is a new file."""
    path = os.path.join(folder, "copy-%d-%d" % (os.getpid(), number))
    shutil.copy("/bin/true" if number % 2 else "/bin/false", path)
    code = subprocess.call([path])
    os.unlink(path)
    return code


# A short process. Imports nothing that is not built in: hundreds of them start per second.
SHORT = """
import gc, posix, time
def count():
    return sum(entry["collections"] for entry in gc.get_stats())
start_ns, base = time.monotonic_ns(), count()
for generation in (0, 1, 2, 0, 0, 1, 0, 2):
    cycle = []
    cycle.append(cycle)
    gc.collect(generation)
gc.disable()
print(posix.getpid(), start_ns, base, count(), time.monotonic_ns(), flush=True)
posix._exit(3)
"""
CROWD_AT_ONCE = 40


def crowd(folder, number, whole):
    """Many short processes; returns how many ended as they should. `whole`: their truth is that of
    their whole life."""
    running, right = [], 0

    def finish():
        done = running.pop(0)
        pid, start_ns, base, all_, end_ns = map(int, done.communicate()[0].split())
        if whole:
            start_ns = base = 0
        truth = {"pid": pid, "start_ns": start_ns, "all": all_, "collections": all_ - base,
                 "end_ns": end_ns, "log": None}
        with open(os.path.join(folder, "%d.json" % pid), "w") as file:
            json.dump(truth, file)
        return done.returncode == 3

    for _ in range(number):
        if len(running) == CROWD_AT_ONCE:
            right += finish()
        running.append(subprocess.Popen([sys.executable, "-S", "-E", "-c", SHORT], stdout=subprocess.PIPE))
    while running:
        right += finish()
    return right


def threads(number):
    workers = [threading.Thread(target=garbage, args=(3000,)) for _ in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return number


def step(options, number, digest):
    garbage(1500)
    said = [number]
    said += [child(options.folder, number)] if number < options.children else []
    said += [forked(options.folder, number)] if number < options.forks else []
    said += [copied(options.folder, number)] if number < options.copies else []
    said += [threads(options.threads)] if options.threads else []
    digest.update(repr(said).encode())
    print("step", number, flush=True)
    time.sleep(options.pace)


def work(options):
    digest = hashlib.sha256()
    kept = [[number] for number in range(options.kept)]
    for number in range(options.steps):
        step(options, number, digest)
    for _ in range(options.collections):
        gc.collect(0)
    if options.crowd:
        print("crowd", crowd(options.folder, options.crowd, options.whole), flush=True)
    print("digest", digest.hexdigest(), len(kept), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--pace", type=float, default=0.02)
    for name, default in (("steps", 20), ("children", 0), ("forks", 0), ("copies", 0), ("threads", 0),
                          ("collections", 0), ("kept", 0), ("crowd", 0), ("exit", 37)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--leaf", type=int)
    parser.add_argument("--whole", action="store_true", help="short processes are recorded from their start")
    parser.add_argument("--log", action="store_true", help="record when each collection started and ended")
    parser.add_argument("--deaf", action="store_true", help="SIGINT and SIGTERM change nothing")
    options = parser.parse_args()
    if options.leaf is not None:
        leaf(options.folder, options.leaf)
        print("leaf", options.leaf, flush=True)
        os._exit(options.leaf % 5)
    if options.deaf:
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
    truth = Truth(options.folder, options.log)
    work(options)
    truth.write()
    os._exit(options.exit)


if __name__ == "__main__":
    main()
