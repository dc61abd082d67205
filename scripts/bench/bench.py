"""Paired measurements of what gctrace costs; prints Markdown. bench.sh calls this.

    bench.py --gctrace BINARY --python PYTHON [--torch-python PYTHON] [--only NAME...]

  busy       tests/python/busy.py, thousands of collections a second
  torch      examples/train_torch.py, median time of a step
  start from the start of gctrace to the command's first line of Python
  detach     from SIGINT, or the command's own end, to gctrace's exit
  analyze    gctrace analyze of a generated trace of 1 GB
  alloc      --alloc against probes on each allocation, see alloc.py
  cuda       what recording a launch costs, see cuda.py
  hta        gctrace analyze against HolisticTraceAnalysis, see hta.py
  parts      cost of the parts of a recording per collection
  inject     what the injected library costs, see inject.py
  builds     this build against --before, see builds.py

busy and torch run untraced, under gctrace, and under a bpftrace script that probes the entry and
return of the same function. The three alternate within every repetition, in an order that rotates;
ratios are taken within a repetition, and their median and middle half are printed. Times are the
program's own, so starting and attaching are excluded.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import alloc
import builds
import cuda
import hta
import inject
from common import spread, wait_until_attached

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

BPFTRACE = """
uprobe:FILE:FUNCTION { @start[tid] = nsecs; @generation[tid] = arg1; }
uretprobe:FILE:FUNCTION /@start[tid]/ {
    printf("%d %d %d %d %d %d\\n", pid, tid, @start[tid], nsecs, @generation[tid], retval);
    delete(@start[tid]);
    delete(@generation[tid]);
}
"""
# The collector's main function by version, see `gctrace doctor --python`.
COLLECTOR = re.compile(r" [tT] (gc_collect_main|collect|_PyGC_Collect)$", re.MULTILINE)


def output(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def collector(python):
    """(file, function) that bpftrace probes, or None for an interpreter without symbols."""
    code = ("import sys; print([l.split()[-1] for l in open('/proc/self/maps') if '/libpython' in l][:1]"
            " or [sys.executable])")
    file = os.path.realpath(eval(output([python, "-c", code]))[0])
    symbols = subprocess.run(["nm", file], capture_output=True, text=True).stdout
    found = COLLECTOR.search(symbols)
    return (file, found[1]) if found else None


class Untraced:
    name = "untraced"

    def run(self, command):
        return output(command)


class Gctrace:
    name = "gctrace"

    def __init__(self, binary, folder):
        self.command = [binary, "record", "-q", "--as-root", "-o", str(folder / "bench.json"), "--"]

    def run(self, command):
        return output(self.command + command)


class Bpftrace:
    name = "bpftrace"

    def __init__(self, python, folder):
        file, function = collector(python)
        self.script = BPFTRACE.replace("FILE", file).replace("FUNCTION", function)
        self.log = folder / "bpftrace.out"
        self.command = ["bpftrace", "-o", str(self.log), "-e", self.script]

    def run(self, command):
        self.log.unlink(missing_ok=True)
        tracer = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_attached(tracer)
            said = output(command)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        if self.log.read_text().count("\n") < 10:
            raise RuntimeError("bpftrace saw no collections")
        return said


def tracers(python, options, folder):
    found = [Untraced(), Gctrace(options.gctrace, folder)]
    if not collector(python):
        print(f"\nbpftrace left out: {python} has no symbols to probe by.")
    elif subprocess.run(["bpftrace", "--version"], capture_output=True).returncode == 0:
        found.append(Bpftrace(python, folder))
    return found


def paired(title, command, value, unit, python, options, folder):
    """Repetitions with all tracers alternating; `value` parses a program's output."""
    kinds = tracers(python, options, folder)
    values = {kind.name: [] for kind in kinds}
    for repetition in range(options.repetitions):
        for turn in range(len(kinds)):
            kind = kinds[(repetition + turn) % len(kinds)]
            values[kind.name].append(value(kind.run(command)))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"\n### {title}\n\n`{' '.join(command).replace(str(CHECKOUT) + '/', '')}`, "
          f"{options.repetitions} repetitions\n")
    print(f"| | median {unit} | ratio to untraced, median (middle half) |\n|---|---|---|")
    for name, own in values.items():
        ratios = sorted(mine / base for mine, base in zip(own, values["untraced"]))
        print(f"| {name} | {statistics.median(own):.4g} | {spread(ratios)} |")
    if "bpftrace" in values:
        ratios = sorted(a / b for a, b in zip(values["gctrace"], values["bpftrace"]))
        print(f"\ngctrace to bpftrace: {spread(ratios)}")


def busy(options, folder):
    command = [options.python, str(CHECKOUT / "tests/python/busy.py"), "--iterations", str(options.iterations)]
    plain = json.loads(output(command))
    rate = plain["collections"] / plain["elapsed_ns"] * 1e9
    paired(f"busy.py: {rate:,.0f} collections a second", command,
           lambda text: json.loads(text)["elapsed_ns"] / 1e9, "s", options.python, options, folder)


class Steps:
    """The running training script, and the time of each of its steps."""

    def __init__(self, python):
        self.times = []
        self.process = subprocess.Popen(
            [python, str(CHECKOUT / "examples/train_torch.py"), "--workers", "0", "--report-every", "1",
             "--steps", "100000"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            found = re.match(r"step .* ([0-9.]+) ms", line)
            if found:
                self.times.append(float(found[1]))

    def median(self, seconds):
        """Median time of the steps of the next seconds, in ms."""
        first = len(self.times)
        time.sleep(seconds)
        return statistics.median(self.times[first:])


def torch(options, folder):
    """One run; tracers attach and detach. Two runs differ by more than a tracer costs."""
    if not options.torch_python:
        print("\n### torch\n\nleft out: no environment with PyTorch")
        return
    steps = Steps(options.torch_python)
    attach = {
        "untraced": None,
        "gctrace": [options.gctrace, "record", "-q", "-o", str(folder / "steps.json"), "-p", str(steps.process.pid)],
    }
    if any(kind.name == "bpftrace" for kind in tracers(options.torch_python, options, folder)):
        attach["bpftrace"] = Bpftrace(options.torch_python, folder).command
    values = {name: [] for name in attach}
    try:
        steps.median(10)
        for turn in range(options.repetitions):
            names = list(attach)
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                values[name].append(while_attached(attach[name], steps))
                print(".", end="", file=sys.stderr, flush=True)
    finally:
        steps.process.kill()
        steps.process.wait()
    print(f"\n\n### train_torch.py: time of a step, tracers attached alternately to one run, "
          f"{options.repetitions} windows of 5 s each\n")
    table(values)


def while_attached(command, steps):
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL) if command else None
    time.sleep(1.5)
    value = steps.median(5)
    if tracer:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    time.sleep(0.5)
    return value


def table(values):
    print("| | median ms | ratio to untraced, median (middle half) |\n|---|---|---|")
    for name, own in values.items():
        ratios = sorted(mine / base for mine, base in zip(own, values["untraced"]))
        print(f"| {name} | {statistics.median(own):.4g} | {spread(ratios)} |")


FIRST_LINE = "import time; print(time.monotonic_ns())"


def start(options, folder):
    print("\n### From start to the command's first line, in addition to the command's own time\n")
    print("| interpreter | first time, ms | warm, median ms (middle half) |\n|---|---|---|")
    for python in dict.fromkeys([options.python, "/usr/bin/python3"]):
        base = statistics.median(first_line([], python) for _ in range(options.repetitions))
        prefix = Gctrace(options.gctrace, folder).command
        # So that the first run starts without a cache. Root's recordings share this cache.
        shutil.rmtree("/var/cache/gctrace", ignore_errors=True)
        times = [first_line(prefix, python) - base for _ in range(options.repetitions + 1)]
        warm = sorted(times[1:])
        print(f"| `{python}` | {times[0]:.1f} | {spread(warm)} |")


def first_line(prefix, python):
    started = time.monotonic_ns()
    said = output(prefix + [python, "-c", FIRST_LINE])
    return (int(said.splitlines()[-1]) - started) / 1e6


def detach(options, folder):
    print("\n### Detaching\n\n| | median ms (middle half) |\n|---|---|")
    record = Gctrace(options.gctrace, folder).command[:-1]
    last = "import os, time; os.write(1, b'%d' % time.monotonic_ns()); os._exit(0)"
    times = []
    for _ in range(options.repetitions):
        said = output(record + ["--", options.python, "-c", last])
        times.append((time.monotonic_ns() - int(said)) / 1e6)
    print(f"| last instruction of the command to gctrace's exit | {spread(sorted(times))} |")
    program = subprocess.Popen([options.python, str(CHECKOUT / "tests/python/busy.py"), "--iterations", "100000000"],
                               stdout=subprocess.DEVNULL)
    try:
        times = [interrupted(record + ["-p", str(program.pid)]) for _ in range(options.repetitions)]
    finally:
        program.kill()
        program.wait()
    print(f"| `-p PID`, SIGINT to gctrace's exit | {spread(sorted(times))} |")


def interrupted(command):
    tracer = subprocess.Popen(command)
    time.sleep(1.0)
    asked = time.monotonic_ns()
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    return (time.monotonic_ns() - asked) / 1e6


def analyze(options, folder):
    trace = folder / "large.json"
    if not generate(options, folder, trace):
        return
    print(f"\n### analyze: a trace of {trace.stat().st_size / 1e9:.2f} GB\n")
    print("| seconds, median of 3 | largest memory, MB |\n|---|---|")
    times, memory = [], 0
    for _ in range(3):
        started = time.monotonic()
        child = subprocess.Popen([options.gctrace, "analyze", str(trace)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        times.append(time.monotonic() - started)
        memory = max(memory, usage.ru_maxrss / 1024)
        if status:
            print(f"| failed with status {status} | |")
            return
    print(f"| {statistics.median(times):.2f} | {memory:.0f} |")
    trace.unlink()


def generate(options, folder, trace, size=1_000_000_000):
    """A real recording with its pauses repeated, shifted in time, up to `size` bytes."""
    small = folder / "small.json"
    output([options.gctrace, "record", "-q", "--as-root", "-o", str(small), "--", options.python,
            str(CHECKOUT / "tests/python/busy.py"), "--iterations", "20000"])
    lines = small.read_text().splitlines(keepends=True)
    pauses = [number for number, line in enumerate(lines) if '"ph":"X"' in line]
    if not pauses:
        print("\n### analyze\n\nleft out: the recording has no pauses")
        return False
    body = [re.split(r'("ts":)([0-9.]+)', lines[number]) for number in pauses]
    first, last = (float(body[index][2]) for index in (0, -1))
    written, shift = 0, 0.0
    with open(trace, "w") as file:
        file.writelines(lines[: pauses[0]])
        while written < size:
            for before, key, stamp, after in body:
                written += file.write(f"{before}{key}{float(stamp) + shift:.3f}{after}")
            shift += last - first + 1000.0
        file.writelines(lines[pauses[-1] + 1 :])
    return True


PARTS = {
    "default": [],
    "no lines (--stack-depth 0)": ["--stack-depth", "0"],
    "lines 32 deep (--stack-depth 32)": ["--stack-depth", "32"],
    "lines 64 deep (--stack-depth 64)": ["--stack-depth", "64"],
    "no counters (--counters none)": ["--counters", "none"],
    "neither": ["--stack-depth", "0", "--counters", "none"],
}


def parts(options, folder):
    """The cost per collection that each recording measures at its end, on the machine as it is
    then."""
    print(f"\n### Cost of a collection by parts, as calibrated; {options.repetitions} recordings of each, alternating\n")
    values = {name: [] for name in PARTS}
    trace = folder / "parts.json"
    for _ in range(options.repetitions):
        for name, extra in PARTS.items():
            output([options.gctrace, "record", "-q", "--as-root", *extra, "-o", str(trace), "--",
                    options.python, "-c", "pass"])
            events = json.loads(trace.read_text())["traceEvents"]
            end = next(event["args"] for event in events if event["name"] == "gctrace_end")
            values[name] += [probe["ns_per_hit"] for probe in end["probes"] if probe["probe"].startswith("collector")]
    print("| recording | us per collection, median (middle half) |\n|---|---|")
    for name, own in values.items():
        print(f"| {name} | {spread(sorted(value / 1000 for value in own))} |")


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    print(f"{os.cpu_count()} cores of {model[1] if model else platform.machine()}, Linux {platform.release()}")


def main():
    all_parts = {"busy": busy, "torch": torch, "start": start, "detach": detach, "analyze": analyze,
             "alloc": alloc.alloc, "cuda": cuda.cuda, "hta": hta.hta,
             "parts": parts, "inject": inject.inject,
             "builds": lambda options, folder: builds.builds(options, folder, generate, spread)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--gctrace", required=True, type=os.path.abspath)
    parser.add_argument("--python", required=True)
    parser.add_argument("--torch-python")
    parser.add_argument("--memray", help="memray of an environment of --python's version, for alloc")
    parser.add_argument("--before", type=os.path.abspath, help="another build's gctrace, for builds")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--iterations", type=int, default=60_000, help="of busy.py")
    parser.add_argument("--only", nargs="*", choices=all_parts, default=list(all_parts))
    options = parser.parse_args()
    machine()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            all_parts[name](options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
