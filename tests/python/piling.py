"""Garbage that no collection frees: piling.py KIND FILE [fix]. Writes the peak of the resident memory, in bytes, to FILE.

Kinds: "off" switches the collector off; "promoted" collects the youngest objects after each unit of work; "rare" makes
few objects that own much.
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


def main():
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
