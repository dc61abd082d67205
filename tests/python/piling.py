"""Garbage that no collection frees: piling.py KIND FILE [fix]. Writes the peak of the resident memory, in bytes, to FILE.

Kinds: "off" switches the collector off; "promoted" collects the youngest objects after each unit of work; "rare" makes
few objects that own much; "often" makes them where collections that free nothing else run often. Of "kept", where glibc keeps what was freed, it is what is resident at the end. "held" has one
large object, and "hangs" a finalizer that waits for a lock that its own thread holds, until the process kills itself.
"""

import gc
import sys
import time

KIND, FILE = sys.argv[1:3]
FIX = "fix" in sys.argv[3:]
SECONDS = 6
UNITS = 900


class Unit:
    """In a cycle with itself."""

    def __init__(self, size):
        self.data = bytearray(size)
        self.me = self
        self.parts = [[part] for part in range(20)]


def switch_off():
    gc.disable()


def work(number):
    unit = Unit(300_000 if KIND != "rare" else 1_500_000)
    if KIND == "rare":
        unit.parts = None
    if KIND == "promoted" and not FIX:
        gc.collect(0)
    return len(unit.data) + number


def peak_bytes():
    with open("/proc/self/status") as status:
        lines = [line.split() for line in status]
    return next(int(line[1]) * 1024 for line in lines if line[0] == "VmHWM:")


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def keep():
    """Frees 200 MB in blocks between small ones that stay, and idles."""
    # Not at the top: what imports allocate starts collections.
    import ctypes

    small = []
    burst = []
    for number in range(2_000):
        burst.append(bytearray(100_000))
        if number % 10 == 0:
            small.append(bytearray(600))
    del burst
    if FIX:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    time.sleep(2 * SECONDS)
    return resident_bytes()


def hold():
    held = bytearray(200_000_000)
    time.sleep(SECONDS)
    return len(held)


def free_often():
    """Few of the many containers that collections meet are garbage, and these own 200 KB each."""
    end = time.monotonic() + SECONDS / 2
    while time.monotonic() < end:
        Unit(200_000).parts = None
        [[part, {}] for part in range(2_000)]
    return peak_bytes()


class Part:
    """Containers without a free list count for the collector."""


class Reporting:
    """In a cycle; reports its end with a lock."""

    def __init__(self, lock):
        self.me = self
        self.lock = lock

    def __del__(self):
        with self.lock:
            pass


def hang():
    import os
    import signal
    import threading

    threading.Timer(SECONDS, os.kill, [os.getpid(), signal.SIGKILL]).start()
    lock = threading.Lock()
    while True:
        Reporting(lock)
        with lock:
            [Part() for _ in range(30)]


def main():
    others = {"kept": keep, "held": hold, "hangs": hang, "often": free_often}
    if KIND in others:
        with open(FILE, "w") as file:
            file.write(str(others[KIND]()))
        return
    if KIND == "off":
        switch_off()
    start = time.monotonic()
    for number in range(UNITS if KIND != "rare" else UNITS // 3):
        work(number)
        if FIX and number % 100 == 0:
            gc.collect()
        # As many units of work in each second, whatever the machine.
        planned = start + SECONDS * (number + 1) / (UNITS if KIND != "rare" else UNITS // 3)
        time.sleep(max(0.0, planned - time.monotonic()))
    with open(FILE, "w") as file:
        file.write(str(peak_bytes()))


main()
