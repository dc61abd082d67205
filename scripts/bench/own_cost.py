#!/usr/bin/env python3
"""What gctrace says that it cost a program, beside what it did cost: ten programs, both modes.

    sudo scripts/bench/own_cost.py --gctrace FILE --python FILE [--rounds 10] [--load 10] [--only NAME ...]

A round is: without gctrace, by kernel probes, in-process, then the same backwards. Each program joins a cgroup
(v1, cpuacct) as its first act, and its CPU time is what it used before plus what the cgroup counts: with its
children, without gctrace, to its last instruction. Printed: by how much that is more than without gctrace (lower
quartiles of the runs: neighbors on the same core only add; and 95 % of those of resampled runs), and what the
recordings said (medians). `--load N` runs N loops beside it that touch memory.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

GROUP = pathlib.Path("/sys/fs/cgroup/cpuacct")

PREFACE = """
import gc, os, sys, time
with open(sys.argv[1] + "/cgroup.procs", "w") as group:
    group.write(str(os.getpid()))
print(time.process_time_ns(), flush=True)
"""

PROGRAMS = {
    "short cycles": """
def step(n):
    for i in range(n):
        a = [i]
        a.append(a)
        b = str(i * 3 % 7) + "x"
step(2_000_000)
""",
    "lists that live on": """
for _ in range(9_000):
    keep = [[] for _ in range(860)]
    del keep
""",
    "200 frames deep": """
def step(n):
    for i in range(n):
        a = [i]
        a.append(a)
        b = str(i * 3 % 7) + "x"
def deep(n):
    step(2_000_000) if n == 0 else deep(n - 1)
deep(200)
""",
    "8 threads": """
import threading
def step(n):
    for i in range(n):
        a = [i]
        a.append(a)
threads = [threading.Thread(target=step, args=(250_000,)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    "gc.collect(0) in a loop": """
gc.collect(); gc.freeze()
def turn(x):
    for i in range(3_000):
        x = (x * 31 + i) & 0xFFFFFFFF
    gc.collect(0)
    return x
x = 1
for _ in range(3_000): x = turn(x)
""",
    "large heap": """
keep = [[i] for i in range(400_000)]
for _ in range(12): gc.collect()
""",
    "no collections": """
def turn(n, x):
    for i in range(n): x = (x * 31 + i) & 0xFFFFFFFF
turn(10_000_000, 1)
""",
    "parser": """
import json
class Node:
    def __init__(self, value, parent):
        self.parent, self.children = parent, []
        self.value = [Node(one, self) for one in value] if isinstance(value, list) else value
text = json.dumps([[{"a": i, "b": [i, str(i)]} for i in range(40)] for _ in range(40)])
table = {}
for i in range(250):
    table[i % 20] = Node(json.loads(text), None)
""",
    "forks": """
data = [[i] for i in range(20_000)]
for _ in range(300):
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
""",
    "processes": """
for _ in range(30):
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], os.environ)
    os.waitpid(pid, 0)
""",
}

# Ends with who started it.
LOAD = """
import os
data = bytearray(8_000_000)
parent = os.getppid()
while os.getppid() == parent:
    data[::64] = data[1::64]
"""


def cpu_ns(command, group):
    """CPU time of the program that `command` runs, without gctrace's."""
    (group / "cpuacct.usage").write_text("0")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stderr}")
    return int(done.stdout.split()[0]) + int((group / "cpuacct.usage").read_text())


def stated(gctrace, trace):
    """Least, likely and most that the recording says, in percent."""
    report = json.loads(subprocess.check_output([gctrace, "analyze", "--format", "json", trace]))
    names = ("cpu_ratio_at_least", "cpu_ratio", "cpu_ratio_at_most")
    return [100 * report["overhead"][name] for name in names], report


def more(runs, bare):
    """By how many percent `runs` are more than `bare`, and 95 % of resampled ones."""

    def quartile(one):
        return statistics.quantiles(one, n=4)[0]

    def ratio(one, other):
        return 100 * (quartile(one) / quartile(other) - 1)

    rng = random.Random(1)
    resampled = sorted(
        ratio(rng.choices(runs, k=len(runs)), rng.choices(bare, k=len(bare))) for _ in range(1_000)
    )
    return ratio(runs, bare), resampled[25], resampled[975]


def measure(name, options, group, folder):
    program = folder / "program.py"
    program.write_text(PREFACE + PROGRAMS[name])
    trace = folder / "trace.json"
    command = [options.python, str(program), str(group)]
    own = [options.gctrace, "-q", "-o", str(trace), "--mode"]
    modes = {"ebpf": [*own, "ebpf", "--", *command], "inject": [*own, "inject", "--", *command]}
    modes = {mode: modes[mode] for mode in options.modes}
    times, said = {mode: [] for mode in ("bare", *modes)}, {mode: [] for mode in modes}
    for _ in range(options.rounds):
        order = ["bare", *modes]
        for mode in order + order[::-1]:
            times[mode].append(cpu_ns(modes.get(mode, command), group))
            if mode == "bare":
                continue
            figures, report = stated(options.gctrace, trace)
            said[mode].append(figures)
            if options.keep:
                with open(options.keep, "a") as file:
                    json.dump({"name": name, "mode": mode, "cpu_ns": times[mode][-1], "bare": times["bare"], "overhead": report["overhead"],
                               "pauses": report["totals"]["pauses"]["count"]}, file)
                    file.write("\n")
    for mode in modes:
        likely, least, most = more(times[mode], times["bare"])
        low, middle, high = (statistics.median(one) for one in zip(*said[mode]))
        inside = "yes" if low <= most and least <= high else "**no**"
        print(
            f"| {name} | {mode} | {statistics.median(times['bare']) / 1e6:.0f} ms | {likely:+.2f} % ({least:+.2f} .. {most:+.2f}) "
            f"| {middle:.2f} % ({low:.2f} - {high:.2f}) | {inside} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--modes", nargs="*", default=["ebpf", "inject"])
    parser.add_argument("--keep", help="a file for the figures of each run")
    options = parser.parse_args()
    group = GROUP / f"own-cost-{os.getpid()}"
    group.mkdir()
    neighbors = [subprocess.Popen([options.python, "-c", LOAD]) for _ in range(options.load)]
    try:
        print("| program | mode | CPU time | more, measured (95 %) | more, stated (range) | agree |\n|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for name in options.only:
                measure(name, options, group, pathlib.Path(folder))
    finally:
        for neighbor in neighbors:
            neighbor.kill()
            neighbor.wait()
        group.rmdir()
        print(f"\nload {os.getloadavg()[0]:.1f}, {options.load} of it by this script", file=sys.stderr)


if __name__ == "__main__":
    main()
