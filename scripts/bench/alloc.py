"""Cost and accuracy of counting allocations: part "alloc" of bench.py.

The slow-down by gctrace is measured within one run of tests/python/allocate.py, to which gctrace is
attached with and without --alloc, alternating: two runs differ by more than either costs. Tracers
that probe each call slow a program down by factors: one run of each. The true rate is the number of
allocations that a wrapper around the allocator counts per round, times the rounds per second of CPU
time of the traced run itself.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

from common import spread, wait_until_attached

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = str(CHECKOUT / "tests/python/allocate.py")
SECONDS = "8"
TURN_S = 3


def output(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def speed(said):
    said = json.loads(said.strip().splitlines()[-1])
    return said["rounds"] / said["cpu_s"], said["rounds"]


def counted_per_round(python, kind, folder):
    library = folder / "counting_allocator.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library,
                    CHECKOUT / "tests/python/counting_allocator.c"], check=True)
    said = json.loads(output([python, PROGRAM, kind, "1", str(library)]))
    return said["allocations"] / said["rounds"]


def estimate(options, folder, python, kind):
    """The estimate of a recording from the start, and the rounds per second of CPU time
    meanwhile."""
    trace = folder / "alloc.json"
    said = output([options.gctrace, "record", "-q", "--as-root", "--alloc", "-o", str(trace), "--",
                   python, PROGRAM, kind, SECONDS])
    events = json.loads(trace.read_text())["traceEvents"]
    summary = [event["args"] for event in events if event["name"] == "gctrace_allocations"][-1]
    return speed(said)[0], summary.get("per_cpu_second"), summary["cost_ns"] / summary["cpu_ns"]


class Running:
    """A running program, and its progress by CPU time."""

    def __init__(self, python, kind):
        self.reports = []
        self.process = subprocess.Popen([python, PROGRAM, kind, "100000", "--report"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            rounds, cpu = line.split()
            self.reports.append((int(rounds), float(cpu)))

    def speed(self, seconds):
        first = len(self.reports)
        time.sleep(seconds)
        (rounds, cpu), (rounds_then, cpu_then) = self.reports[first], self.reports[-1]
        return (rounds_then - rounds) / (cpu_then - cpu)


def while_attached(options, folder, extra, running):
    if extra is None:
        return running.speed(TURN_S)
    tracer = subprocess.Popen([options.gctrace, "record", "-q", *extra, "-o", str(folder / "turn.json"),
                               "-p", str(running.process.pid)])
    time.sleep(1)
    value = running.speed(TURN_S)
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    return value


def in_turns(options, folder, python, kind):
    kinds = {"untraced": None, "gctrace": [], "gctrace --alloc": ["--alloc"]}
    values = {name: [] for name in kinds}
    running = Running(python, kind)
    try:
        while len(running.reports) < 5:
            time.sleep(0.2)
        for turn in range(options.repetitions):
            names = list(kinds)
            for name in names[turn % 3:] + names[:turn % 3]:
                values[name].append(while_attached(options, folder, kinds[name], running))
                print(".", end="", file=sys.stderr, flush=True)
    finally:
        running.process.kill()
        running.process.wait()
    return values


def bpftrace(python, kind, folder):
    """Rounds per second of CPU time while each call is counted, and the calls per round."""
    code = ("import sys; print([l.split()[-1] for l in open('/proc/self/maps') if '/libpython' in l][:1]"
            " or [sys.executable])")
    file = os.path.realpath(eval(output([python, "-c", code]))[0])
    log = folder / "bpftrace.out"
    tracer = subprocess.Popen(["bpftrace", "-o", str(log), "-e", f"uprobe:{file}:PyObject_Malloc {{ @ = count(); }}"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_attached(tracer, fewest=1)
        rounds_per_second, rounds = speed(output([python, PROGRAM, kind, "3"]))
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    # One round precedes the timed ones. The count includes start and end of the interpreter.
    found = re.search(r"@: (\d+)", log.read_text())
    return rounds_per_second, int(found[1]) / (rounds + 1) if found else None


def memray(program, kind, folder):
    return speed(output([program, "run", "-q", "--trace-python-allocators", "--aggregate", "-f", "-o",
                         str(folder / "memray.bin"), PROGRAM, kind, "3"]))[0]


def alloc(options, folder):
    print("\n### --alloc: slow-down and rate\n")
    print(f"{options.repetitions} turns of {TURN_S} s each\n")
    print("| program | tracer | slow-down, median (middle half) | estimated to true rate | cost stated |")
    print("|---|---|---|---|---|")
    kinds = [(options.python, kind) for kind in ("integers", "growing", "loads", "dumps")]
    if options.torch_python:
        kinds.append((options.torch_python, "torch"))
    for python, kind in kinds:
        of_program(options, folder, python, kind)


def of_program(options, folder, python, kind):
    per_round = counted_per_round(python, kind, folder)
    values = in_turns(options, folder, python, kind)
    ratios = {name: sorted(base / mine for base, mine in zip(values["untraced"], own)) for name, own in values.items()}
    print(f"| {kind} | gctrace | {spread(ratios['gctrace'])} | - | - |")
    rounds_per_second, rate, cost = estimate(options, folder, python, kind)
    near = f"{rate / (per_round * rounds_per_second):.3f}" if rate else "no estimate"
    print(f"| {kind} | gctrace --alloc | {spread(ratios['gctrace --alloc'])} | {near} | {cost * 100:.2f} % |")
    untraced = statistics.median(values["untraced"])
    if shutil.which("bpftrace"):
        slow, counted = bpftrace(python, kind, folder)
        near = f"{counted / per_round:.3f}" if counted else "-"
        print(f"| {kind} | bpftrace, each call of PyObject_Malloc | {untraced / slow:.1f} | {near} | - |", flush=True)
    if options.memray and kind != "torch":
        print(f"| {kind} | memray, each call | {untraced / memray(options.memray, kind, folder):.1f} | - | - |", flush=True)
