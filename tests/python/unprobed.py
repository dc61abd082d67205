"""Counts collections in CPython's own statistics that no function of CPython ran.

Like programs that contain their own copy of the collector (those compiled by Nuitka).
Offsets: `_PyRuntime.interpreters.head`, `gc` in the interpreter, `generation_stats`.
"""

import ctypes
import gc
import os
import sys

COUNTED = 7

OFFSETS = {(3, 11): (40, 648, 128), (3, 12): (40, 112, 128), (3, 13): (632, 7400, 128)}


def main():
    head, state, stats = OFFSETS[sys.version_info[:2]]
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    interpreter = ctypes.c_uint64.from_address(runtime + head).value
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    ctypes.c_uint64.from_address(interpreter + state + stats).value += COUNTED
    assert gc.get_stats()[0]["collections"] == before + COUNTED
    if os.fork() == 0:
        gc.collect()
        os._exit(0)
    os.wait()
    gc.collect()


gc.disable()
main()
