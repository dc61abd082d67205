#!/usr/bin/env python3
"""Cost of gctrace top: of gctrace itself, and for the program that it watches.

The program: threads (1,000) in one or several processes that call gc.collect(0) at fixed times, so
that together they make a given number of pauses a second (10,000). gctrace's own CPU time is taken
from /proc/PID/stat over some seconds in the middle of the run: printing JSON to /dev/null, also
with --record, as gctrace record, and with the view on a pseudo-terminal that is read continuously.
The program's cost is its own CPU time per pause, untraced, under record and under top, alternating
in rounds.

    sudo python3 scripts/bench/top.py --gctrace target/release/gctrace
"""

import argparse
import fcntl
import gc
import json
import os
import pathlib
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_S = 4


def collect_at(start, every, until, counts, index):
    due = start
    while due < until:
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        gc.collect(0)
        counts[index] += 1
        due += every


def program(threads, rate, seconds):
    """One process: reports its number of pauses, and its CPU time from the first to the last."""
    gc.disable()
    threading.stack_size(256 * 1024)
    every = threads / rate
    counts = [0] * threads
    start = time.monotonic() + 1.5
    workers = [threading.Thread(target=collect_at, args=(start + every * index / threads, every, start + seconds, counts, index))
               for index in range(threads)]
    for worker in workers:
        worker.start()
    time.sleep(max(0, start - time.monotonic()))
    cpu = time.process_time()
    for worker in workers:
        worker.join()
    print(json.dumps({"pauses": sum(counts), "cpu_s": time.process_time() - cpu,
                      "wall_s": time.monotonic() - start}), flush=True)


def programs(options):
    """All processes of the program: their reports are written to the file named by --report."""
    each = [sys.executable, __file__, "--program", str(options.threads // options.processes),
            str(options.rate / options.processes), str(options.seconds)]
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for _ in range(options.processes)]
    report = [json.loads(process.communicate()[0]) for process in running]
    pathlib.Path(options.report).write_text(json.dumps(report))


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def drain(descriptor):
    seen = 0
    while True:
        try:
            seen += len(os.read(descriptor, 1 << 16))
        except OSError:
            return seen


def on_terminal(command):
    """Starts a command on its own terminal, which a thread reads."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))

    def lead():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, preexec_fn=lead,
                               env={**os.environ, "TERM": "xterm-256color"})
    os.close(inner)
    threading.Thread(target=drain, args=(outer,), daemon=True).start()
    return process, outer


def measure(options, gctrace_arguments, view=False):
    """One run: CPU of gctrace in percent of a core, and the program's report."""
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.json"
        command = [sys.executable, __file__, "--report", report, "--threads", str(options.threads), "--rate", str(options.rate),
                   "--processes", str(options.processes), "--seconds", str(options.seconds)]
        outer = None
        if gctrace_arguments is not None:
            arguments = [argument.replace("FOLDER", folder) for argument in gctrace_arguments]
            command = [options.gctrace, *arguments, "--", *command]
        if view:
            process, outer = on_terminal(command)
        else:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(SETTLE_S)
        before, start = cpu_s(process.pid), time.monotonic()
        time.sleep(options.seconds - SETTLE_S - 1)
        own = (cpu_s(process.pid) - before) / (time.monotonic() - start) * 100
        if outer is not None:
            while not os.path.exists(report):
                time.sleep(0.2)
            time.sleep(1)
            os.write(outer, b"q")
        errors = process.communicate()[1]
        if process.returncode != 0:
            sys.exit(f"{command} ended with {process.returncode}: {errors}")
        report = json.loads(pathlib.Path(report).read_text())
    pauses = sum(one["pauses"] for one in report)
    program_cpu = sum(one["cpu_s"] for one in report)
    wall = max(one["wall_s"] for one in report)
    return {"own": own, "rate": pauses / wall, "cpu_us": program_cpu / pauses * 1e6,
            "lost": bool(errors) and "LOST" in errors}


RUNS = {
    "untraced": (None, False),
    "record": (["record", "--as-root", "-o", "FOLDER/t.json"], False),
    "top --format json": (["top", "--as-root", "--format", "json"], False),
    "top --format json --record": (["top", "--as-root", "--format", "json", "--record", "FOLDER/t.json"], False),
    "top (view, 1 s)": (["top", "--as-root"], True),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gctrace", default="target/release/gctrace")
    parser.add_argument("--threads", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=10000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="only runs whose name contains this")
    parser.add_argument("--report", help=argparse.SUPPRESS)
    parser.add_argument("--program", nargs=3, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        threads, rate, seconds = options.program
        return program(int(threads), rate, seconds)
    if options.report:
        return programs(options)
    chosen = {name: run for name, run in RUNS.items() if not options.only or options.only in name}
    results = {name: [] for name in chosen}
    for _ in range(options.rounds):
        for name, (arguments, view) in chosen.items():
            results[name].append(measure(options, arguments, view))
    print(f"{options.threads} threads in {options.processes} processes, {options.rate:.0f} pauses a second requested, "
          f"median of {options.rounds}")
    print(f"{'':30} {'pauses/s':>9} {'gctrace, % of a core':>21} {'program, us CPU per pause':>26} {'of untraced':>12}")
    middle = lambda name, key: statistics.median(result[key] for result in results[name])
    for name in chosen:
        own = "" if name == "untraced" else f"{middle(name, 'own'):.2f}"
        ratio = f"{middle(name, 'cpu_us') / middle('untraced', 'cpu_us'):.3f}" if "untraced" in results else ""
        lost = "  LOST" if any(result["lost"] for result in results[name]) else ""
        print(f"{name:30} {middle(name, 'rate'):9.0f} {own:>21} {middle(name, 'cpu_us'):26.1f} {ratio:>12}{lost}")


main()
