#!/usr/bin/env python3
"""Bytes a pause and a day of a flight recorder, and what it costs itself.

    scripts/bench/recorder.py GCTRACE [--seconds 180] [--rate 50] [--keep 10m] [-- OPTIONS OF RECORD]

Records a program with so many collections a second by `gctrace record --keep`, reads the recorder's own CPU time
and memory from /proc, and counts the pauses in the segments that are complete. Removes what it wrote.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import gc, sys, time
gc.disable()
seconds, rate = float(sys.argv[1]), float(sys.argv[2])
class Node:
    def __init__(self): self.me = self
def layer(depth):
    if depth: return layer(depth - 1)
    nodes = [Node() for _ in range(50)]
    del nodes
    gc.collect(0)
start, done = time.monotonic(), 0
while time.monotonic() < start + seconds:
    layer(done % 12)
    done += 1
    time.sleep(max(0.0, start + done / rate - time.monotonic()))
"""
TICKS = os.sysconf("SC_CLK_TCK")


def usage(pid: int) -> tuple[float, int]:
    """CPU time in seconds and resident memory in KiB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    memory = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return (int(fields[11]) + int(fields[12])) / TICKS, int(memory.group(1)) if memory else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gctrace", type=Path)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--keep", default="10m")
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    asked = parser.parse_args(own.split())
    with tempfile.TemporaryDirectory() as folder:
        ring = Path(folder, "ring")
        command = [asked.gctrace.resolve(), "record", "--keep", asked.keep, "-o", ring, *options.split(), "--"]
        command += [sys.executable, "-c", PROGRAM, str(asked.seconds), str(asked.rate)]
        recorder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(min(10.0, asked.seconds / 4))
        before, since = usage(recorder.pid), time.monotonic()
        time.sleep(max(1.0, asked.seconds - 2 - min(10.0, asked.seconds / 4)))
        after, until = usage(recorder.pid), time.monotonic()
        recorder.wait()
        segments = sorted(ring.glob("*.json.zst"))[:-1]
        text = [subprocess.run(["zstdcat", path], stdout=subprocess.PIPE, check=True).stdout for path in segments]
        kinds: dict[str, int] = {}
        for line in b"\n".join(text).splitlines():
            found = re.search(rb'"name":"([^"]*)"', line)
            name = found.group(1).decode() if found else ""
            kinds[name] = kinds.get(name, 0) + len(line)
        pauses = sum(one.count(b'"cat":"gc",') for one in text)
        size = sum(path.stat().st_size for path in segments)
    print(f"{len(segments)} segments, {pauses} pauses, {size} bytes: {size / max(pauses, 1):.1f} a pause")
    print(f"at {asked.rate:g} a second: {size / max(pauses, 1) * asked.rate * 86_400 / 1e6:.1f} MB a day")
    passed = until - since
    print(f"recorder: {(after[0] - before[0]) / passed:.2%} of a CPU, {after[1] / 1024:.1f} MiB resident")
    total = sum(kinds.values())
    for name, count in sorted(kinds.items(), key=lambda kind: -kind[1])[:6]:
        print(f"  {count / total:6.1%} of the text: {name}")


if __name__ == "__main__":
    main()
