#!/usr/bin/env python3
"""Is a program under `gctrace auto` killed for memory in a container with a tight limit? As root.

    scripts/bench/auto_memory.py --gctrace FILE --python FILE [--runs 20] [--room 1.3]

Steps make 1 MB of garbage each, which only the collector frees. The program runs alone, for the most memory that its
cgroup takes; then in one that may take --room times as much: alone, with `gctrace apply --gc threshold=50000,10,10`,
which must be killed (else the limit proves nothing), and --runs times with `gctrace auto`, of which none may be.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import sys
heap = [[i] for i in range(200_000)]
def train_step():
    x = 0
    for i in range(3000):
        x += i * i % 7
    for _ in range(50):
        cycle = [bytearray(20_000)]
        cycle.append(cycle)
for _ in range(4_000):
    train_step()
"""
MOUNT = pathlib.Path("/sys/fs/cgroup")
IS_SECOND = (MOUNT / "cgroup.controllers").exists()
LIMIT, MOST = ("memory.max", "memory.peak") if IS_SECOND else ("memory.limit_in_bytes", "memory.max_usage_in_bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--room", type=float, default=1.3, help="the limit, as a multiple of what the program takes")
    options = parser.parse_args()
    program = [options.python, "-c", PROGRAM]
    gctrace = options.gctrace.resolve()
    step = ["--step-function", "train_step", "--"]
    _, taken = run(program, None)
    limit = int(taken * options.room)
    print(f"alone: {taken >> 20} MiB; the limit: {limit >> 20} MiB")
    alone, _ = run(program, limit)
    larger, _ = run([gctrace, "apply", "-q", "--gc", "threshold=50000,10,10", *step, *program], limit)
    print(f"alone within it: exit code {alone}; with threshold=50000,10,10: {larger}")
    with tempfile.TemporaryDirectory() as folder:
        auto = [gctrace, "auto", "-q", "--force", "-o", f"{folder}/auto.json", *step, *program]
        ended = [run(auto, limit) for _ in range(options.runs)]
    killed = sum(code != 0 for code, _ in ended)
    most = max(taken for _, taken in ended)
    print(f"gctrace auto: {killed} of {options.runs} killed; at most {most >> 20} MiB taken")
    return int(alone != 0 or larger == 0 or killed > 0)


def run(command, limit):
    """The exit code, and the most memory that the command's cgroup took, in bytes."""
    group = (MOUNT if IS_SECOND else MOUNT / "memory") / f"gctrace-auto-{os.getpid()}"
    group.mkdir()
    try:
        if limit:
            (group / LIMIT).write_text(str(limit))
        enter = (group / "cgroup.procs").write_text
        done = subprocess.run(command, preexec_fn=lambda: enter(str(os.getpid())), stderr=subprocess.DEVNULL)
        code = 128 - done.returncode if done.returncode < 0 else done.returncode
        return code, int((group / MOST).read_text())
    finally:
        empty(group)


def empty(group):
    for _ in range(50):
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            return group.rmdir()
        except OSError:  # its processes are still ending
            time.sleep(0.1)
    raise RuntimeError(f"{group} is in use")


if __name__ == "__main__":
    sys.exit(main())
