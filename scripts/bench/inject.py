"""Cost of the injected library per collection and per allocation; part `inject` of bench.py.

    inject.py --library libgctrace_inject.so --python PYTHON... [--gctrace BINARY] [--repetitions 15]

The library hands its ring to a listener; here that is this script, which drains it every 5 ms
without decoding. With --gctrace (and root) whole recordings are added, in-process and by eBPF. Each
repetition runs all variants alternately; times are CPU times of the program.
"""

import argparse
import json
import mmap
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

# Offsets of the ring's header (probes/ring/src/layout.rs).
HEAD, TAIL = 64, 128

LOOPS = """
import gc, json, operator, os, sys, time
if os.environ.get("BENCH_CALLBACK"):
    gc.callbacks.append(operator.is_)
def timed(work, count):
    loop = range(count)
    start = time.process_time_ns()
    for _ in loop:
        work()
    return (time.process_time_ns() - start) / count
gc.disable()
young = lambda: gc.collect(0)
# If every collection is a full one, there is time for fewer.
count = 100_000 if timed(young, 100) < 20_000 else 1000
print(json.dumps({"collection": timed(young, count), "allocation": timed(object, 1_000_000)}))
"""

VARIANTS = {
    "nothing": None,
    # CPython's own cost of any callback.
    "a callback that does nothing": None,
    "library": "gc=1,stack=16,alloc=0,cuda=0",
    "library, no lines": "gc=1,stack=0,alloc=0,cuda=0",
    "library, --alloc": "gc=1,stack=16,alloc=1,cuda=0",
}

RECORDINGS = {
    "gctrace --mode inject": ["--mode", "inject"],
    "gctrace --mode inject --alloc": ["--mode", "inject", "--alloc"],
    "gctrace --mode ebpf": ["--mode", "ebpf"],
}


class Reader:
    """Accepts rings and drains them."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen()
        self.socket.setblocking(False)
        self.rings = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            time.sleep(0.005)
            try:
                connection, _ = self.socket.accept()
            except BlockingIOError:
                pass
            else:
                connection.setblocking(True)
                _, (descriptor,), _, _ = socket.recv_fds(connection, 1024, 1)
                self.rings.append(mmap.mmap(descriptor, 0))
                os.close(descriptor)
            for ring in self.rings:
                ring[TAIL:TAIL + 8] = ring[HEAD:HEAD + 8]

    def forget(self):
        """Number of records in the rings, which are closed."""
        rings, self.rings = self.rings, []
        return sum(struct.unpack_from("<Q", ring, HEAD)[0] for ring in rings)


def environment(library, variant, path):
    own = dict(os.environ)
    if variant.startswith("a callback"):
        own["BENCH_CALLBACK"] = "1"
    if VARIANTS.get(variant):
        own |= {"LD_PRELOAD": library, "GCTRACE_RENDEZVOUS": path, "GCTRACE_INJECT": VARIANTS[variant]}
    return own


def recording(gctrace, variant, path):
    """The first words of a command line."""
    if variant not in RECORDINGS:
        return []
    trace = str(pathlib.Path(path).with_name("trace.json"))
    return [gctrace, "-q", "--cuda", "off", "--nvml-hz", "0", *RECORDINGS[variant], "-o", trace, "--"]


def measure(library, gctrace, python, command, repetitions, value, path, reader):
    """{variant: values}, with all variants alternating."""
    names = [*VARIANTS, *(RECORDINGS if gctrace else [])]
    values = {variant: [] for variant in names}
    for turn in range(repetitions):
        for variant in names[turn % len(names):] + names[:turn % len(names)]:
            line = [*recording(gctrace, variant, path), python, *command]
            said = subprocess.run(line, env=environment(library, variant, path),
                                  check=True, capture_output=True, text=True).stdout
            values[variant].append(value(json.loads(said)))
            if bool(reader.forget()) != bool(VARIANTS.get(variant)):
                raise RuntimeError(f"{variant}: records where there should be none, or none where there should be")
    return values


def spread(numbers, form):
    low, middle, high = statistics.quantiles(numbers, n=4)
    return f"{middle:{form}} ({low:{form}} - {high:{form}})"


def added(values, unit, form):
    """Median and middle half of the cost of each variant compared with none, pair by pair."""
    print(f"| | {unit}, median | beyond doing nothing, median (middle half) |\n|---|---|---|")
    for variant, own in values.items():
        extra = [mine - base for mine, base in zip(own, values["nothing"])]
        print(f"| {variant} | {statistics.median(own):{form}} | "
              + (spread(extra, form) if variant != "nothing" else "") + " |")


def version(python):
    return subprocess.run([python, "-V"], capture_output=True, text=True).stdout.strip()


def loops(library, gctrace, python, repetitions, path, reader):
    both = measure(library, gctrace, python, ["-c", LOOPS], repetitions, lambda said: said, path, reader)
    print(f"\n### Injected library, {version(python)}: an empty `gc.collect(0)`, ns\n")
    added({variant: [one["collection"] for one in own] for variant, own in both.items()}, "ns", ".0f")
    print(f"\n### Injected library, {version(python)}: `object()`, created and freed, ns\n")
    added({variant: [one["allocation"] for one in own] for variant, own in both.items()}, "ns", ".1f")


def busy(library, gctrace, python, repetitions, iterations, path, reader):
    command = [str(CHECKOUT / "tests/python/busy.py"), "--iterations", str(iterations)]
    values = measure(library, gctrace, python, command, repetitions, lambda said: said["cpu_ns"] / 1e9, path, reader)
    print(f"\n### Injected library, {version(python)}: `tests/python/busy.py --iterations {iterations}`\n")
    print("| | median s of CPU time | ratio to nothing, median (middle half) |\n|---|---|---|")
    for variant, own in values.items():
        ratios = [mine / base for mine, base in zip(own, values["nothing"])]
        print(f"| {variant} | {statistics.median(own):.4g} | {spread(ratios, '.4f')} |")


def measure_all(library, gctrace, pythons, repetitions, iterations):
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "socket")
        reader = Reader(path)
        for python in pythons:
            loops(library, gctrace, python, repetitions, path, reader)
        if iterations:
            busy(library, gctrace, pythons[0], repetitions, iterations, path, reader)


def inject(options, folder):
    """As a part of bench.py: the library next to the binary."""
    library = pathlib.Path(options.gctrace).with_name("libgctrace_inject.so")
    if not library.exists():
        print(f"\n### Injected library\n\nleft out: no {library}")
        return
    gctrace = options.gctrace if os.geteuid() == 0 else None
    measure_all(str(library), gctrace, [options.python], max(options.repetitions, 3), options.iterations)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--python", required=True, nargs="+")
    parser.add_argument("--gctrace", type=os.path.abspath)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=0, help="of busy.py; 0: leave it out")
    options = parser.parse_args()
    measure_all(options.library, options.gctrace, options.python, options.repetitions, options.iterations)


if __name__ == "__main__":
    main()
