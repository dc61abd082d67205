"""Confines itself by a filter of system calls, makes collections, and leaves with 4.

    confining.py HOW END [ALLOWED]

HOW is what sets the filter: a function of the program (`prctl`, `syscall`), of the C library as ctypes finds it in its
file (`library-prctl`, `library-syscall`), a thread for all others (`tsync`), or none but the strict mode (`strict`). END:
`exit` or `return`. ALLOWED is a file with numbers: any other call kills. Without it nothing is forbidden: so the calls
that the program itself makes from then on can be looked at. It makes no new ones for memory: that is there before.
"""

import ctypes
import gc
import os
import platform
import struct
import sys
import threading

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, STRICT, FILTER = 22, 38, 1, 2
SET_MODE_FILTER, TSYNC = 1, 1
SECCOMP, EXIT, MADVISE = {"x86_64": (317, 60, 28), "aarch64": (277, 93, 233)}[platform.machine()]
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06


class Node:
    pass


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def train_step(number):
    node = Node()
    node.node = node


def work(steps):
    for number in range(steps):
        train_step(number)


def filter_of(allowed):
    code = [(LOAD, 0, 0, 0)]
    for number in allowed:
        code += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    code.append((RETURN, 0, 0, KILL_PROCESS if allowed else ALLOW))
    text = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(text)
    return buffer, Program(len(code), ctypes.addressof(buffer))


def confine(how, allowed):
    buffer, program = filter_of(allowed)
    libc = ctypes.CDLL("libc.so.6" if how.startswith("library") else None)
    number = ctypes.c_long
    if how == "strict":
        assert libc.prctl(PR_SET_SECCOMP, STRICT) == 0
        return
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    # Asks whether there are filters: refused, and confines nothing.
    assert libc.prctl(PR_SET_SECCOMP, FILTER, None, 0, 0) == -1
    work(2000)
    if how.endswith("prctl"):
        assert libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0
        return
    arguments = [number(SECCOMP), number(SET_MODE_FILTER), number(0), ctypes.byref(program)]
    if how == "tsync":
        arguments[2] = number(TSYNC)
        results = []
        thread = threading.Thread(target=lambda: results.append(libc.syscall(*arguments)))
        thread.start()
        thread.join()
        assert results == [0], results
    else:
        assert libc.syscall(*arguments) == 0


def main():
    how, end = sys.argv[1:3]
    allowed = []
    if len(sys.argv) > 3:
        with open(sys.argv[3]) as file:
            allowed = [int(number) for number in file.read().split()]
        if how == "tsync":
            # How threads end, before which the process may have ended.
            allowed += [EXIT, MADVISE]
    # Memory for what follows: an arena with an object in it is kept.
    nodes = [Node() for _ in range(200000)]
    for node in nodes:
        node.node = node
    kept = nodes[::50]
    del nodes, node
    gc.collect()
    work(5000)
    libc = ctypes.CDLL(None)
    confine(how, allowed)
    work(30000)
    gc.collect()
    if how != "strict":
        gc.set_threshold(800, 10, 10)
        gc.freeze()
        gc.unfreeze()
        work(3000)
        child = os.fork()
        if child == 0:
            work(3000)
            gc.collect()
            os._exit(2)
        status = os.waitpid(child, 0)[1]
        os.write(1, b"child %d\n" % status)
    if how == "tsync":
        thread = threading.Thread(target=work, args=(3000,))
        thread.start()
        thread.join()
    os.write(1, b"survived %d\n" % len(kept))
    if how == "strict":
        libc.syscall(EXIT, 4)
    if end == "exit":
        os._exit(4)
    sys.exit(4)


main()
