"""The kernel's view of a round: its processes and their states, and BPF programs without an
owner."""

import ctypes
import glob
import os
import struct
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
SYS_BPF, BPF_PROG_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID = 321, 11, 31


def adopt_orphans():
    """From now on every descendant stays one: orphans become children of this process."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def children(pid):
    found, tasks = [], "/proc/%d/task" % pid
    try:
        for task in os.listdir(tasks):
            with open("%s/%s/children" % (tasks, task)) as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # it has just ended
    return found


def descendants(pid):
    """All live descendants; zombies do not count, unless they are stuck below another process."""
    found, rest = [], [pid]
    while rest:
        below = children(rest.pop())
        found += below
        rest += below
    return [one for one in dict.fromkeys(found) if state(one) not in ("Z", "X", None)]


def stat(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
        return name, rest.split()
    except (OSError, IndexError):
        return None, None


def state(pid):
    _, fields = stat(pid)
    return fields[0] if fields else None


def words(pid):
    """Its command line; empty for a process that has just exited."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def describe(pid):
    """A one-line description."""
    name, fields = stat(pid)
    try:
        with open("/proc/%d/wchan" % pid) as file:
            waits = file.read()
    except OSError:
        waits = "?"
    return "%d %s state %s parent %s waits in %s: %s" % (
        pid, name, fields and fields[0], fields and fields[1], waits, " ".join(words(pid))[:160])


class StopWatch(threading.Thread):
    """Checks ten times a second which descendants are stopped, and for how long."""

    def __init__(self, excused):
        super().__init__(daemon=True)
        self.excused, self.since, self.longest, self.over = excused, {}, 0.0, threading.Event()
        self.worst = None

    def run(self):
        me = os.getpid()
        while not self.over.wait(0.1):
            now, stopped = time.monotonic(), set()
            for pid in descendants(me):
                if state(pid) in ("T", "t") and pid not in self.excused:  # by a signal, or by ptrace
                    stopped.add(pid)
                    self.look(pid, now)
            self.since = {pid: since for pid, since in self.since.items() if pid in stopped}

    def look(self, pid, now):
        length = now - self.since.setdefault(pid, now)
        if length > self.longest:
            self.longest, self.worst = length, describe(pid)


def next_ids(command):
    """Ids of all BPF programs or links of this machine."""
    found, last = set(), 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("<III", last, 0, 0), 64)
        if LIBC.syscall(SYS_BPF, command, attributes, 64):
            return found
        last = struct.unpack_from("<I", attributes, 4)[0]
        found.add(last)


def loaded():
    return {("program", one) for one in next_ids(BPF_PROG_GET_NEXT_ID)} | {
        ("link", one) for one in next_ids(BPF_LINK_GET_NEXT_ID)}


def owned():
    """BPF programs and links that a process has open."""
    found = set()
    for folder in glob.glob("/proc/[0-9]*/fdinfo"):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name)) as file:
                    text = file.read()
            except OSError:
                continue
            for line in text.splitlines():
                word, _, value = line.partition(":")
                if word in ("prog_id", "link_id"):
                    found.add(("program" if word == "prog_id" else "link", int(value)))
    return found


def ownerless(before, patience):
    """Objects loaded since `before` that no process has had open for `patience` seconds: the kernel
    frees programs shortly after their last descriptor is closed."""
    end = time.monotonic() + patience
    while True:
        left = loaded() - before
        left = left - owned() if left else left
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.2)
