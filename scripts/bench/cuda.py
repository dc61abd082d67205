"""Cost of recording a launch: part "cuda" of bench.py.

A program launches kernels of no duration on the simulated GPU as fast as it can. gctrace, with
launches counted or recorded one by one, and a bpftrace script with probes on the entries of the
same functions are attached to it alternately, within one run. The result is how much longer a
launch takes than without.
"""

import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TURN_S = 3

PROGRAM = """
import ctypes, sys, time

from common import spread
driver, runtime = (ctypes.CDLL(sys.argv[1] + name) for name in ("/libcuda.so.1", "/libcudart.so.12"))
class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
kernel = ctypes.c_void_p()
runtime.cudaSetDevice(0)
driver.simgpuKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p]
assert driver.simgpuKernel(b"empty", 0, ctypes.byref(kernel)) == 0
launch = runtime.cudaLaunchKernel
launch.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
one = Dim3(1, 1, 1)
while True:
    start = time.process_time_ns()
    for _ in range(20000):
        launch(kernel, one, one, None, 0, None)
    print((time.process_time_ns() - start) / 20000, flush=True)
    runtime.cudaDeviceSynchronize()
"""


class Launching:
    """The program, and nanoseconds per launch of its last rounds."""

    def __init__(self, python, libraries):
        self.rounds = []
        self.process = subprocess.Popen([python, "-c", PROGRAM, str(libraries)], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.rounds.append(float(line))

    def median(self):
        first = len(self.rounds) + 1
        time.sleep(TURN_S)
        return statistics.median(self.rounds[first:])


def tracers(options, folder, libraries, pid):
    script = "".join(f"uprobe:{libraries}/{file}:{function} /pid == {pid}/ {{ @[probe] = count(); }} "
                     for file, function in (("libcuda.so.1", "cuLaunchKernel"), ("libcudart.so.12", "cudaLaunchKernel")))
    record = [options.gctrace, "record", "-q", "-o", str(folder / "turn.json"), "-p", str(pid)]
    return {
        "untraced": None,
        "gctrace --cuda off": [*record, "--cuda", "off"],
        "gctrace (launches counted)": record,
        "gctrace --cuda all": [*record, "--cuda", "all"],
        "bpftrace, both entries": ["bpftrace", "-e", script],
    }


def while_attached(command, launching):
    if command is None:
        return launching.median()
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(3 if command[0] == "bpftrace" else 1.5)
    value = launching.median()
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    return value


def cuda(options, folder):
    print(f"\n### Cost of recording a launch, on the simulated GPU; {options.repetitions} turns of {TURN_S} s\n")
    libraries = tempfile.mkdtemp(prefix="simgpu")
    subprocess.run(["cargo", "run", "--release", "--quiet", "-p", "gctrace-simgpu", "--example", "lay_out", "--",
                    libraries], check=True, cwd=CHECKOUT)
    launching = Launching(options.python, libraries)
    values = {}
    try:
        while len(launching.rounds) < 5:
            time.sleep(0.2)
        kinds = tracers(options, folder, libraries, launching.process.pid)
        values = {name: [] for name in kinds}
        for turn in range(options.repetitions):
            names = list(kinds)
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                values[name].append(while_attached(kinds[name], launching))
                print(".", end="", file=sys.stderr, flush=True)
    finally:
        launching.process.kill()
        launching.process.wait()
        subprocess.run(["rm", "-r", libraries], check=False)
    print("| | median ns of CPU time per launch | more than untraced, median ns (middle half) |\n|---|---|---|")
    for name, own in values.items():
        more = sorted(mine - base for mine, base in zip(own, values["untraced"]))
        print(f"| {name} | {statistics.median(own):.0f} | {spread(more) if name != 'untraced' else '-'} |")
