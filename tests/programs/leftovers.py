"""What a run may leave behind: processes, stopped ones, probes. Finds, reports and removes all of it.

The driver is the subreaper of everything it starts, so that what outlives a run is its descendant.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import signal
import struct
import time

PR_SET_CHILD_SUBREAPER = 36
SYS_BPF = 321  # x86-64
BPF_LINK_GET_FD_BY_ID, BPF_LINK_GET_NEXT_ID = 30, 31
# gctrace's guardian and the kernel's deferred freeing of links end slightly after the run.
PATIENCE_S = 10

libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans():
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def processes():
    """pid -> (parent, state, command line)."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            found[int(folder.name)] = (int(parent), state, words or name)
    return found


def descendants():
    """Those of this process, without zombies; reaps orphaned zombies."""
    every = processes()
    mine, edge = {}, {os.getpid()}
    while edge:
        edge = {pid for pid, (parent, _, _) in every.items() if parent in edge}
        mine.update((pid, every[pid]) for pid in edge)
    for pid, (parent, state, _) in list(mine.items()):
        if state == "Z":
            del mine[pid]
            if parent == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
    return mine


def describe(found):
    return "; ".join(f"{pid} {state} {words[:80]}" for pid, (_, state, words) in sorted(found.items()))


def end_processes():
    """Kills what is left of this process's descendants."""
    for _ in range(100):
        left = descendants()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def left_processes():
    """Waits for the last ones to exit; kills and reports those that did not."""
    until = time.monotonic() + PATIENCE_S
    left = descendants()
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = descendants()
    if not left:
        return None
    sentence = f"left over: {describe(left)}"
    end_processes()
    return sentence


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = libc.syscall(SYS_BPF, command, buffer, len(buffer))
    if result < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return result, buffer.raw


def links():
    """Numbers of all BPF links of this machine; empty without the permission."""
    found, last = set(), 0
    with contextlib.suppress(OSError):
        while True:
            _, answer = bpf(BPF_LINK_GET_NEXT_ID, struct.pack("II", last, 0))
            last = struct.unpack_from("II", answer)[1]
            found.add(last)
    return found


def link_exists(link):
    try:
        descriptor, _ = bpf(BPF_LINK_GET_FD_BY_ID, struct.pack("I", link))
    except OSError as error:
        return error.errno != errno.ENOENT
    os.close(descriptor)
    return True


def held_links():
    """Numbers of the links that a process has a descriptor of."""
    held = set()
    for file in pathlib.Path("/proc").glob("[0-9]*/fdinfo/*"):
        with contextlib.suppress(OSError):
            for line in file.read_text().splitlines():
                if line.startswith("link_id:"):
                    held.add(int(line.split()[1]))
    return held


def left_links(before):
    """Reports probes that are new since `before` and open in no process: they would stay forever."""
    until = time.monotonic() + PATIENCE_S
    while True:
        new = links() - before
        left = {link for link in new - held_links() if link_exists(link)} if new else set()
        if not left:
            return None
        if time.monotonic() > until:
            return f"{len(left)} BPF links left behind"
        time.sleep(0.5)
