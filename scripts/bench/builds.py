"""Two builds side by side: what a change costs or saves. `bench.py --only builds --before BINARY`
calls it.

Both run in turn within every repetition, in an order that rotates; ratios (--gctrace to --before)
are taken within a repetition. Recording is measured by the program's own CPU time, analyze by
gctrace's, top by that of gctrace and the program together.
"""

import json
import os
import statistics
import subprocess
import sys

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Size of the generated trace: large enough that the reader's speed decides.
TRACE_BYTES = 200_000_000


def run(command):
    """(standard output, CPU seconds with all waited-for children, largest memory in MB)"""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command}: status {status}")
    return text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def builds(options, folder, generate, spread):
    if not options.before:
        print("\n### Two builds\n\nleft out: --before names no other build")
        return
    trace = folder / "large.json"
    if not generate(options, folder, trace, TRACE_BYTES):
        return
    program = [options.python, f"{CHECKOUT}/tests/python/busy.py", "--iterations", str(options.iterations)]

    def record(binary, mode):
        out = str(folder / "bench.json")
        text = run([binary, "record", "-q", "--as-root", "--mode", mode, "-o", out, "--", *program])[0]
        return json.loads(text.splitlines()[-1])["cpu_ns"] / 1e9

    def top(binary):
        return run([binary, "top", "--as-root", "--format", "json", "--", *program])[1]

    measured = {
        "a recorded program, probes: its CPU time, s": lambda binary: record(binary, "ebpf"),
        "a recorded program, in-process: its CPU time, s": lambda binary: record(binary, "inject"),
        f"analyze, {TRACE_BYTES // 1_000_000} MB: CPU time, s": lambda binary: run([binary, "analyze", str(trace)])[1],
        "analyze: largest memory, MB": lambda binary: run([binary, "analyze", str(trace)])[2],
        "top, with the program: CPU time, s": top,
    }
    print(f"\n### Two builds, {options.repetitions} repetitions\n")
    print("| | before | after | ratio, median (middle half) |\n|---|---|---|---|")
    for name, measure in measured.items():
        values = ([], [])
        for repetition in range(options.repetitions):
            for turn in range(2):
                which = (repetition + turn) % 2
                values[which].append(measure((options.before, options.gctrace)[which]))
                print(".", end="", file=sys.stderr, flush=True)
        ratios = sorted(after / before for before, after in zip(*values))
        medians = " | ".join(f"{statistics.median(own):.4g}" for own in values)
        print(f"| {name} | {medians} | {spread(ratios)} |", flush=True)
