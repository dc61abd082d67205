"""Maps and unmaps arenas of the interpreter's allocator, then prints the allocator's
own statistics (sys._debugmallocstats) to stderr and ends at once, so that nothing is
mapped or unmapped after them. Standard library only; CPython 3.8 to 3.15 with the GIL.
"""

import os
import sys
import time


def grow_and_shrink():
    kept = []
    for _ in range(3):
        kept.append([object() for _ in range(300_000)])
    kept.clear()


def main():
    for _ in range(4):
        grow_and_shrink()
        time.sleep(0.4)  # longer than one interval of the recording altogether
    sys._debugmallocstats()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
