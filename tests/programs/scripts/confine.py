"""Forbids system calls by a filter, then execs a program: confine.py eperm|kill NUMBER,...
COMMAND..."""

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW = 0x7FFF0000  # SECCOMP_RET_ALLOW
ACTIONS = {"eperm": 0x00050001, "kill": 0x80000000}  # SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_KILL_PROCESS
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K


def confine(numbers, matching, others):
    """A filter with one action for these system calls and another one for all others."""
    count = len(numbers)
    lines = [(LOAD_NUMBER, 0, 0, 0)]
    lines += [(JUMP_IF_EQUAL, count - index, 0, number) for index, number in enumerate(numbers)]
    lines += [(RETURN, 0, 0, others), (RETURN, 0, 0, matching)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    confine([int(number) for number in sys.argv[2].split(",")], ACTIONS[sys.argv[1]], ALLOW)
    os.execv(sys.argv[3], sys.argv[3:])
