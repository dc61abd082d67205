#!/usr/bin/env python3
"""What a collection, a fork, a turn, a new Python and a start cost under gctrace and its peers, in one run; two programs.

    sudo scripts/bench/performance.py GCTRACE --python PYTHON [--py-spy FILE] [--rounds 5] [--parts NAME ...]

A round runs every way forwards, then backwards; the mean of both, less the untraced one of the round, is a value.
collection: CPU time of the program's thread, the fastest tenth of its batches. The others: CPU time of all processes
with the recorder's, of a cgroup (v1, cpuacct); of forks, processes and turns what N of them take more than a tenth of N, by
the difference; alone is the program with its children, without the recorder. Needs bpftrace, a Python with symbols.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

import bench

GROUP = pathlib.Path("/sys/fs/cgroup/cpuacct")
CALLBACK = """
import gc, operator, os
if os.environ.get("BENCH_CALLBACK") == "C":
    gc.callbacks.append(operator.is_)
elif os.environ.get("BENCH_CALLBACK"):
    seen = []
    gc.callbacks.append(lambda phase, info: seen.append(phase))
"""
# 860 lists alive, then freed: one automatic young collection.
COLLECTION = CALLBACK + """
import statistics, time
def explicit(count=500):
    begun = time.thread_time_ns()
    for _ in range(count):
        gc.collect(0)
    return (time.thread_time_ns() - begun) / count
def automatic(count=200):
    begun = time.thread_time_ns()
    for _ in range(count):
        keep = [[] for _ in range(860)]
        del keep
    return (time.thread_time_ns() - begun) / count
gc.collect()
gc.freeze()
for work in (explicit, automatic):
    until, batches = time.monotonic() + 0.7, [work()]
    while time.monotonic() < until:
        batches.append(work())
    print(statistics.quantiles(batches, n=10)[0])
"""
CHILDREN = """
import os, sys
for _ in range(int(sys.argv[1])):
    pid = WAY
    os.waitpid(pid, 0)
print(sum(os.times()[:4]))
"""
FORK = CHILDREN.replace("WAY", "os.fork() or os._exit(0)")
PROCESS = CHILDREN.replace("WAY", 'os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], os.environ)')
THREADS = CALLBACK + """
import threading
def step():
    for i in range(700_000):
        a = [i]
        a.append(a)
threads = [threading.Thread(target=step) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
NUMERIC = """
total = 0
for i in range(20_000_000):
    total += i % 7
"""
# Turns of asyncio that look for input and do not wait; as monitor a heartbeat whose lateness a thread looks at.
TURNS = """
import asyncio, os, sys, threading, time, traceback
beaten, main = [time.monotonic()], threading.get_ident()
async def beat():
    while True:
        beaten[0] = time.monotonic()
        await asyncio.sleep(0.01)
def watch():
    while True:
        time.sleep(0.01)
        if time.monotonic() - beaten[0] > 0.05:
            traceback.extract_stack(sys._current_frames()[main])
async def serve(count):
    if os.environ.get("BENCH_CALLBACK"):
        threading.Thread(target=watch, daemon=True).start()
        beats = asyncio.create_task(beat())
    for _ in range(count):
        sum(range(4000))
        await asyncio.sleep(0)
asyncio.run(serve(int(sys.argv[1])))
print(sum(os.times()[:4]))
"""
# Name: (program, how many of what it makes).
PARTS = {"collection": (COLLECTION, 0), "fork": (FORK, 1000), "process": (PROCESS, 100), "turns": (TURNS, 50_000), "start": ("pass", 0),
         "threads": (THREADS, 0), "numeric": (NUMERIC, 0)}
LEAN = ["--sample", "0", "--stack-depth", "0", "--counters", "none", "--garbage", "off"]
GCTRACE = {
    "gctrace --mode ebpf": ["--mode", "ebpf"],
    "gctrace --mode ebpf --sample 0": ["--mode", "ebpf", "--sample", "0"],
    "gctrace --mode ebpf, lean": ["--mode", "ebpf", *LEAN],
    "gctrace --mode inject": ["--mode", "inject"],
}


def ways(options, part, folder):
    """{name: (first words of a command, BENCH_CALLBACK, whether the program is one quoted word)}"""
    found = {"untraced": ([], "", False)}
    if part in ("collection", "threads"):
        found |= {"a C callback": ([], "C", False), "a Python callback": ([], "Python", False)}
    if part == "turns":
        found["a heartbeat"] = ([], "Python", False)
    file, function = bench.collector(options.python)
    script = (f"uprobe:{file}:{function} {{ @s[tid] = nsecs; }} uretprobe:{file}:{function} /@s[tid]/ "
              "{ @d = hist(nsecs - @s[tid]); delete(@s[tid]); }")
    found["bpftrace"] = (["bpftrace", "-q", "-B", "full", "-o", f"{folder}/log", "-e", script, "-c"], "", True)
    if options.py_spy and part not in ("collection", "start"):
        spy = [options.py_spy, "record", "-r", "100", "-f", "raw", "-o", f"{folder}/spy", "--subprocesses", "--"]
        found["py-spy"] = (spy, "", False)
    for name, asked in GCTRACE.items():
        found[name] = ([options.gctrace, "-q", "-o", f"{folder}/trace.json", *asked, "--"], "", False)
    return found


def run(way, program, folder):
    """CPU seconds of all processes, wall seconds, and the numbers that the program printed."""
    first, callback, quoted = way
    command = [*first, " ".join(program)] if quoted else [*first, *program]
    group = GROUP / f"performance-{os.getpid()}"
    group.mkdir(exist_ok=True)
    (group / "cpuacct.usage").write_text("0")
    begun = bench.time.monotonic()
    with open(f"{folder}/said", "w+") as said:
        subprocess.run(command, check=True, stdout=said, stderr=subprocess.DEVNULL,
                       env=os.environ | {"BENCH_CALLBACK": callback},
                       preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        wall = bench.time.monotonic() - begun
        said.seek(0)
        numbers = [float(line) for line in said if line[0].isdigit()]
    return int((group / "cpuacct.usage").read_text()) / 1e9, wall, numbers


def values(way, part, program, folder):
    """{column: value} of one run."""
    count = PARTS[part][1]
    cpu, wall, said = run(way, [*program, str(count)], folder)
    if part == "collection":
        return {"explicit, ns": said[0], "automatic, ns": said[1]}
    if not count:
        return {"CPU ms": cpu * 1e3, "wall ms": wall * 1e3}
    few, _, few_said = run(way, [*program, str(count // 10)], folder)
    each = 1e6 / (count - count // 10)
    return {"us each": (cpu - few) * each, "us each, alone": (said[0] - few_said[0]) * each}


def measure(options, part, folder):
    file = pathlib.Path(folder, "program.py")
    file.write_text(PARTS[part][0])
    found = ways(options, part, folder)
    rounds = []
    for _ in range(options.rounds):
        got = {name: [] for name in found}
        for name in [*found, *reversed(found)]:
            got[name].append(values(found[name], part, [options.python, str(file)], folder))
        rounds.append({name: {key: (one[key] + other[key]) / 2 for key in one} for name, (one, other) in got.items()})
    columns = list(rounds[0]["untraced"])
    print(f"\n| {part}, load {os.getloadavg()[0]:.1f} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in found:
        cells = []
        for column in columns:
            base = [0 if name == "untraced" else one["untraced"][column] for one in rounds]
            more = [one[name][column] - less for one, less in zip(rounds, base)]
            cells.append(f"{'' if name == 'untraced' else '+'}{statistics.median(more):.1f} ({min(more):.1f} - {max(more):.1f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gctrace")
    parser.add_argument("--python", required=True)
    parser.add_argument("--py-spy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            measure(options, part, folder)


if __name__ == "__main__":
    main()
