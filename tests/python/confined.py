"""Runs a command under a seccomp filter that kills it for the system calls of gctrace's library.

    confined.py COMMAND...

These are memfd_create, socket and connect (x86-64).
"""

import ctypes
import os
import struct
import sys

FORBIDDEN = (319, 41, 42)
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def main():
    code = [(LOAD, 0, 0, 0)]
    for number in FORBIDDEN:
        code += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, KILL_PROCESS)]
    code.append((RETURN, 0, 0, ALLOW))
    text = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(text)
    program = Program(len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0
    os.execvp(sys.argv[1], sys.argv[1:])


main()
