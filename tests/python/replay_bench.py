"""A piece of training on the simulated GPU, repeated with and without collections: the building
blocks of the cases in replay_truth.py.

The host's work is paced: each piece ends a fixed time after the previous one, not counting
collections, so that a busy machine disturbs a run as little as possible. After a thread waited for
the GPU, its pace starts anew.
"""

import ctypes
import gc
import os
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_void_p

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples"))

from run_delay import RunDelay  # noqa: E402
from train_simgpu import Cuda, Device, Ranks  # noqa: E402

now = time.monotonic_ns

# Pairs of objects in the heap: half of a run's collections traverse the small part, the others
# both.
SMALL, LARGE = 90_000, 270_000
# Garbage of one step, in cycles.
CYCLES = 100
# A call that takes longer has waited for the GPU.
WAITED_NS = 60_000
KERNELS = {"short": 30, "even": 50, "long": 100, "longer": 120}


def cycles(count):
    """Pairs of lists that refer to each other."""
    pairs = []
    for _ in range(count):
        first, second = [], []
        first.append(second)
        second.append(first)
        pairs.append(first)
    return pairs


def captured(cuda, device):
    """An executable graph of twenty kernels."""
    stream, graph, executable = c_void_p(device.streams[0]), c_void_p(), c_void_p()
    cuda("cudaStreamBeginCapture", stream, 0)
    for _ in range(20):
        device.launch("even")
    cuda("cudaStreamEndCapture", stream, byref(graph))
    cuda("cudaGraphInstantiate", byref(executable), graph, c_size_t(0))
    return executable.value


def unix_offset():
    """Wall clock minus `now`; the fastest of a hundred readings, which was not interrupted."""

    def reading():
        before, wall, after = now(), time.time_ns(), now()
        return after - before, wall - (before + after) // 2

    return min(reading() for _ in range(100))[1]


class Collections:
    """All collections of this process, from its own callbacks."""

    def __init__(self):
        self.seen, self.total_ns, self.started_ns = [], 0, 0
        gc.callbacks.append(self.on_collection)

    def on_collection(self, phase, info):
        if phase == "start":
            self.started_ns = now()
            return
        ended_ns = now()
        self.total_ns += ended_ns - self.started_ns
        started_ns, self.started_ns = self.started_ns, 0
        self.seen.append({"tid": threading.get_native_id(), "start": started_ns, "end": ended_ns,
                          "generation": info["generation"], "collected": info["collected"]})

    def settle(self):
        """Returns when no other thread is between the end of a collection and its callback."""
        while self.started_ns:
            time.sleep(0)


class Host(threading.local):
    """A thread's pace. `collections` is set once for all threads."""

    until_ns = 0
    paused_ns = 0
    collections = None

    def begin(self):
        Host.collections.settle()
        self.until_ns, self.paused_ns = now(), Host.collections.total_ns

    def work(self, microseconds):
        """Python work of this duration."""
        self.until_ns += int(microseconds * 1000)
        while now() < self.until_ns + Host.collections.total_ns - self.paused_ns:
            pass
        if Host.collections.started_ns:
            Host.collections.settle()
            self.work(0)


class Bench:
    """The GPU, the heap, and the record of what was done."""

    def __init__(self, options):
        self.rank = int(os.environ.get("RANK", "0"))
        self.cuda = Cuda(options.library)
        self.cuda.runtime.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
        self.cuda.runtime.cudaEventSynchronize.argtypes = [c_void_p]
        self.cuda.runtime.cudaGraphLaunch.argtypes = [c_void_p, c_void_p]
        self.device = Device(self.cuda, self.rank, 3, 60)
        self.device.kernels.update((name, self.cuda.kernel(name, us)) for name, us in KERNELS.items())
        self.native = ctypes.CDLL(options.native) if options.native else None
        self.graph = captured(self.cuda, self.device)
        self.default_stream = len(self.device.streams)
        self.device.streams.append(None)
        self.device.events.append(None)
        self.ranks = Ranks(self.cuda, options.library, self.device) if options.ranks > 1 else None
        self.host = Host()
        Host.collections = Collections()
        self.large, self.small = cycles(LARGE), None
        self.runs, self.collecting, self.collect_at = [], False, frozenset()
        self.launches = 0
        self.delay = RunDelay()

    # The building blocks of cases.

    def start(self, name, function):
        """A thread that ends within the run, with its waits for a CPU counted."""

        def counted():
            function()
            self.delay.thread_ends()

        thread = threading.Thread(target=counted, name=name)
        thread.start()
        return thread

    def launch(self, kernel, stream=0, after_us=0):
        """Host work, a collection at chosen times, then a launch."""
        self.host.work(after_us)
        self.maybe_collect()
        self.device.launch(kernel, stream)

    def maybe_collect(self):
        if self.collecting and self.launches in self.collect_at:
            gc.collect()
        self.launches += 1

    def call(self, function, *arguments):
        """A call that may wait for the GPU; after one that waited, the pace starts anew."""
        started_ns = now()
        paused_ns = Host.collections.total_ns
        function(*arguments)
        Host.collections.settle()
        if now() - started_ns - (Host.collections.total_ns - paused_ns) > WAITED_NS:
            self.host.begin()

    def annotated(self, name, microseconds):
        """Host work with a name."""
        started_ns = now()
        self.host.work(microseconds)
        self.runs[-1]["annotations"].append([name, threading.get_native_id(), started_ns, now()])

    def wait(self, stream=0):
        self.call(self.cuda, "cudaStreamSynchronize", self.device.streams[stream])

    def steps(self, count):
        """Step numbers; each step creates garbage. Half-way the heap grows."""
        for step in range(count):
            if step == count // 2:
                gc.unfreeze()
            started_ns = now()
            cycles(CYCLES)
            yield step
            self.runs[-1]["steps"].append([step, threading.get_native_id(), started_ns, now()])

    # Runs.

    def prepare(self):
        """Restores the same state before every run: the large part of the heap set aside, nothing
        queued."""
        gc.unfreeze()
        self.small = None
        gc.collect()
        gc.freeze()
        self.small = cycles(SMALL)
        gc.collect()
        self.launches = 0
        self.cuda("cudaDeviceSynchronize")
        if self.ranks is not None:
            self.ranks.all_reduce(None, 4)
            self.cuda("cudaDeviceSynchronize")

    def run(self, number, case, collect_at):
        self.prepare()
        self.collecting = number % 2 == 0
        self.collect_at = frozenset(collect_at)
        self.delay.begin()
        run = {"collecting": self.collecting, "steps": [], "annotations": [], "start": now()}
        self.runs.append(run)
        self.device.launch("short")  # A run starts with a call, with and without collections.
        self.host.begin()
        case(self)
        self.cuda("cudaDeviceSynchronize")
        run["end"] = now()
        run["launches"] = self.launches
        run.update(self.delay.record())

    def record(self):
        threads = {thread.native_id: thread.name for thread in threading.enumerate()}
        return {"pid": os.getpid(), "rank": self.rank, "unix_offset": unix_offset(),
                "world_size": int(os.environ.get("WORLD_SIZE", "1")), "threads": threads,
                "runs": self.runs, "collections": Host.collections.seen,
                "python": sys.version.split()[0]}
