"""A program that has its allocator print what it has, and waits without allocating anything.

Prints `sys._debugmallocstats()` and a last line, `blocks`: those in use.
"""

import os
import sys
import time

KEPT = [[number] for number in range(100_000)]
del KEPT[::3]
# Blocks of all sizes, and arenas that became free.
SIZES = [bytes(size) for size in range(480) for _ in range(50)]
FREED = [bytes(400) for _ in range(100_000)]
del FREED

os.dup2(1, 2)
sys._debugmallocstats()
print("blocks", sys.getallocatedblocks(), flush=True)
time.sleep(1000)
