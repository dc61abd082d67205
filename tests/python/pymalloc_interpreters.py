"""A program with an interpreter that has an allocator of its own; waits without allocating anything.

Prints `sys._debugmallocstats()` of both, and a last line, `blocks`: 0 where it cannot have one. Needs
CPython 3.12.
"""

import os
import sys
import time

os.dup2(1, 2)
try:
    if sys.version_info >= (3, 13):
        import _interpreters

        other, execute = _interpreters.create("isolated"), _interpreters.exec
    else:
        import _xxsubinterpreters

        other, execute = _xxsubinterpreters.create(isolated=True), _xxsubinterpreters.run_string
except ImportError as error:
    print(error)
    print("blocks 0", flush=True)
    sys.exit()
KEPT = [[number] for number in range(50_000)]
failed = execute(other, """
import sys
KEPT = [[number] for number in range(200_000)]
sys._debugmallocstats()
""")
if failed is not None:
    sys.exit(str(failed))
sys._debugmallocstats()
print("blocks", sys.getallocatedblocks(), flush=True)
time.sleep(1000)
