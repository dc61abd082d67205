#!/usr/bin/env python3
"""CPU time that in-process recording adds to a forked child, of one gctrace or several.

    scripts/bench/forks.py GCTRACE... [--python PYTHON] [--rounds 8]

A program forks 1,500 children, each of which ends at once and is waited for; os.times() of it and
its children. A round runs it untraced, under each gctrace, and all again in reverse order.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

CHILDREN = 1500
PROGRAM = """
import os, sys
for _ in range(%d):
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
with open(sys.argv[1], "w") as file:
    file.write(str(sum(os.times()[:4])))
""" % CHILDREN


def milliseconds(command, folder):
    """CPU time of a child, and what its parent does for it."""
    result = os.path.join(folder, "cpu")
    subprocess.run(command + ["-c", PROGRAM, result], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    with open(result) as file:
        return float(file.read()) / CHILDREN * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gctrace", nargs="+")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    record = ["record", "--mode", "inject", "-o", "trace.json", "--"]
    ways = [[options.python]] + [[gctrace] + record + [options.python] for gctrace in options.gctrace]
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            first = [milliseconds(way, folder) for way in ways]
            again = [milliseconds(way, folder) for way in reversed(ways)]
            rounds.append([(one + other) / 2 for one, other in zip(first, reversed(again))])
    print("load %.1f" % os.getloadavg()[0])
    print("untraced: %.3f ms" % statistics.median(times[0] for times in rounds))
    for number, gctrace in enumerate(options.gctrace, 1):
        added = [times[number] - times[0] for times in rounds]
        print("%s: added %.3f ms (%.3f, %.3f)" % (gctrace, statistics.median(added), min(added), max(added)))


main()
