"""Runs a command under a seccomp filter that kills it for the system calls of gctrace's library.

    confined.py COMMAND...

These are memfd_create, socket, connect, madvise, and openat to write (x86-64).
"""

import ctypes
import os
import struct
import sys

FORBIDDEN = (319, 41, 42, 28)
OPENAT, MODE = 257, 3
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, JUMP_IF_ANY, RETURN = 0x20, 0x15, 0x45, 0x06
# Where a filter finds the lower half of the third argument.
THIRD = 32


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def main():
    code = [(LOAD, 0, 0, 0)]
    for number in FORBIDDEN:
        code += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, KILL_PROCESS)]
    code += [(JUMP_IF_EQUAL, 0, 3, OPENAT), (LOAD, 0, 0, THIRD), (JUMP_IF_ANY, 0, 1, MODE)]
    code += [(RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW)]
    text = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(text)
    program = Program(len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0
    os.execvp(sys.argv[1], sys.argv[1:])


main()
