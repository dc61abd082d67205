"""What pauses of the collector really cost: the same work on the simulated GPU with and without them.

    replay_truth.py CASE --library DIR --out DIR [--runs 10]

Repeats a piece of training RUNS times in one process. Even runs collect at fixed moments of the
work, by gc.collect() over a large heap (the case `automatic`: by the collector itself); odd runs do
the same without. All else is equal, so the difference in length is what the collections cost.

Writes DIR/program.<rank>.json: processes and threads, runs, steps, and collections as gc.callbacks
saw them, all in CLOCK_MONOTONIC nanoseconds. The simulated GPU writes its own log (SIMGPU_LOG).

The host's work is paced: each piece ends a fixed time after the one before has ended, collections
not counted, so that a busy machine disturbs a run as little as possible. A thread that waited for
the GPU begins anew.
"""

import argparse
import gc
import json
import os
import queue
import random
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_void_p

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples"))

from train_simgpu import TO_HOST, Cuda, Device, Ranks, start_ranks  # noqa: E402

now = time.monotonic_ns

# Pairs of objects in the heap: half a run's collections see the small part, the others both.
SMALL, LARGE = 90_000, 360_000
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


class Collections:
    """All collections of this process, from its own callbacks."""

    def __init__(self):
        self.seen, self.total_ns, self.begun_ns = [], 0, 0
        gc.callbacks.append(self.told)

    def told(self, phase, info):
        if phase == "start":
            self.begun_ns = now()
            return
        ended_ns = now()
        self.total_ns += ended_ns - self.begun_ns
        begun_ns, self.begun_ns = self.begun_ns, 0
        self.seen.append({"tid": threading.get_native_id(), "begin": begun_ns, "end": ended_ns,
                          "generation": info["generation"], "collected": info["collected"]})


    def settle(self):
        """Returns when no other thread is between the end of a collection and telling it."""
        while self.begun_ns:
            time.sleep(0)


class Host(threading.local):
    """A thread's pace. `collections` is set once for all threads."""

    until_ns = 0
    paused_ns = 0
    collections = None

    def begin(self):
        self.until_ns, self.paused_ns = now(), Host.collections.total_ns

    def work(self, microseconds):
        """Python work of this length."""
        self.until_ns += int(microseconds * 1000)
        while now() < self.until_ns + Host.collections.total_ns - self.paused_ns:
            pass
        if Host.collections.begun_ns:
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
        self.device = Device(self.cuda, self.rank, 3, 1)
        self.device.kernels = {name: self.cuda.kernel(name, us) for name, us in KERNELS.items()}
        self.graph = captured(self.cuda, self.device)
        self.default_stream = len(self.device.streams)
        self.device.streams.append(None)
        self.device.events.append(None)
        self.ranks = Ranks(self.cuda, options.library, self.device) if options.ranks > 1 else None
        self.host = Host()
        Host.collections = Collections()
        self.large, self.small = cycles(LARGE), None
        self.runs, self.collecting, self.moments = [], False, frozenset()
        self.launches = 0

    # What cases are made of.

    def launch(self, kernel, stream=0, after_us=0):
        """Host work, at its moments a collection, then a launch."""
        self.host.work(after_us)
        self.moment()
        self.call(self.device.launch, kernel, stream)

    def moment(self):
        if self.collecting and self.launches in self.moments:
            gc.collect()
        self.launches += 1

    def call(self, function, *arguments):
        """A call that may wait; after one that did the pace begins anew."""
        begun_ns = now()
        paused_ns = Host.collections.total_ns
        function(*arguments)
        Host.collections.settle()
        if now() - begun_ns - (Host.collections.total_ns - paused_ns) > WAITED_NS:
            self.host.begin()

    def wait(self, stream=0):
        self.call(self.cuda, "cudaStreamSynchronize", self.device.streams[stream])

    def steps(self, count):
        """Numbers of steps; each makes garbage. Half-way the heap grows."""
        for step in range(count):
            if step == count // 2:
                gc.unfreeze()
            begun_ns = now()
            cycles(CYCLES)
            yield step
            self.runs[-1]["steps"].append([step, threading.get_native_id(), begun_ns, now()])

    # Runs.

    def prepare(self):
        """The same state before every run: the large part of the heap set aside, nothing queued."""
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

    def run(self, number, case, moments):
        self.prepare()
        self.collecting = number % 2 == 0
        self.moments = frozenset(moments)
        run = {"collecting": self.collecting, "steps": [], "begin": now()}
        self.runs.append(run)
        self.device.launch("short")  # A run begins with a call, with and without collections.
        self.host.begin()
        case(self)
        self.cuda("cudaDeviceSynchronize")
        run["end"] = now()
        run["launches"] = self.launches

    def record(self):
        threads = {thread.native_id: thread.name for thread in threading.enumerate()}
        return {"pid": os.getpid(), "rank": self.rank, "unix_offset": time.time_ns() - now(),
                "world_size": int(os.environ.get("WORLD_SIZE", "1")), "threads": threads,
                "runs": self.runs, "collections": Host.collections.seen,
                "python": sys.version.split()[0]}


# The cases. Each is a function of the bench, with the launches before which it collects.

CASES = {}


def case(count, launches, ranks=1, collecting_ranks=None, first=()):
    """Adds a case that makes so many launches and collects before `count` of them, and before `first`."""

    def add(function):
        rng = random.Random(function.__name__)

        def moments(rank):
            some = sorted(rng.sample(range(1, launches), count))
            mine = collecting_ranks is None or rank in collecting_ranks
            return [*first, *some] if mine else []

        CASES[function.__name__] = (function, [moments(rank) for rank in range(ranks)], ranks)
        return function

    return add


@case(8, 40 * 20)
def shallow(bench):
    """The host waits at the end of every step."""
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=25)
        bench.wait()


@case(6, 24 * 100, first=(600, 1800))
def deep(bench):
    """Hundreds of kernels ahead: the host waits every sixth step. Two collections follow a wait."""
    for step in bench.steps(24):
        for _ in range(100):
            bench.launch("longer", after_us=20)
        if step % 6 == 5:
            bench.wait()


@case(8, 30 * 80)
def saturated(bench):
    """The GPU waits for the host at every launch."""
    for _ in bench.steps(30):
        for _ in range(80):
            bench.launch("short", after_us=70)


@case(8, 30 * 40)
def streams(bench):
    """Three streams that fork and join by events in every step."""
    for step in bench.steps(30):
        for at in range(10):
            bench.launch("long", after_us=25)
        for stream in (1, 2):
            bench.device.join(stream, 0)
        for at in range(30):
            bench.launch("long", at % 3, after_us=25)
        for stream in (1, 2):
            bench.device.join(0, stream)
        if step % 4 == 3:
            bench.wait()


@case(8, 40 * 80)
def nonblocking(bench):
    """The host never waits, and is a little faster than the GPU."""
    for _ in bench.steps(40):
        for _ in range(80):
            bench.launch("even", after_us=45)


@case(5, 40 * 80)
def full_queue(bench):
    """The host is so far ahead that the launch queue holds it back."""
    for _ in bench.steps(40):
        for _ in range(80):
            bench.launch("even", after_us=14)


@case(8, 40 * 20)
def legacy_stream(bench):
    """Kernels in the default stream; a blocking copy of the result ends every step."""
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", bench.default_stream, after_us=25)
        bench.host.work(20)
        bench.call(bench.cuda, "cudaMemcpy", None, 4096, 4, TO_HOST)


@case(8, 40 * 20)
def two_behind(bench):
    """The host waits by an event for the step before the last."""
    events = [bench.device.events[at] for at in (0, 1)]
    for step in bench.steps(40):
        if step >= 2:
            bench.call(bench.cuda, "cudaEventSynchronize", events[step % 2])
        for _ in range(20):
            bench.launch("long", after_us=60)
        bench.cuda("cudaEventRecord", events[step % 2], bench.device.streams[0])


@case(8, 40 * 40)
def second_thread(bench):
    """As automatic differentiation does: another thread launches the second half while this one waits."""
    asked, done = queue.SimpleQueue(), queue.SimpleQueue()

    def backward():
        bench.cuda("cudaSetDevice", bench.rank)
        while asked.get():
            bench.host.begin()
            for _ in range(20):
                bench.launch("long", after_us=40)
            done.put(True)

    thread = threading.Thread(target=backward, name="backward")
    thread.start()
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=40)
        asked.put(True)
        done.get()
        bench.host.begin()
        bench.wait()
    asked.put(False)
    thread.join()


@case(8, 30 * 80)
def loader_thread(bench):
    """Another thread collects, as a loader of data does; this one cannot go on meanwhile."""
    asked, moments, collecting = queue.SimpleQueue(), bench.moments, bench.collecting
    bench.collecting = False

    def loader():
        while asked.get():
            if collecting:
                gc.collect()

    thread = threading.Thread(target=loader, name="loader")
    thread.start()
    for _ in bench.steps(30):
        for _ in range(80):
            if bench.launches in moments:
                asked.put(True)
            bench.launch("even", after_us=60)
    asked.put(False)
    thread.join()


@case(8, 60 * 20)
def graphs(bench):
    """Each step launches one captured graph of twenty kernels; sixty steps, a wait in every fourth."""
    stream = bench.device.streams[0]
    for step in bench.steps(60):
        for _ in range(20):
            bench.host.work(30)
            bench.moment()
        bench.call(bench.cuda, "cudaGraphLaunch", bench.graph, stream)
        if step % 4 == 3:
            bench.wait()


@case(0, 40)
def automatic(bench):
    """The collector itself decides when: objects of ten steps are kept, and it is on or off."""
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 1000, 1000)
    if bench.collecting:
        gc.enable()
    kept = []
    for step in bench.steps(40):
        bench.host.work(500)
        kept.append([[] for _ in range(12_000)])
        if step % 10 == 9:
            kept.clear()
        bench.host.work(3_000)
        for _ in range(20):
            bench.launch("even", after_us=20)
        if step % 2:
            bench.wait()
    gc.disable()
    gc.set_threshold(*thresholds)


def reduced_steps(bench):
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=40)
        bench.ranks.all_reduce(None, 1 << 20)
        for _ in range(4):
            bench.launch("short", after_us=40)
        bench.wait()


@case(8, 40 * 24, ranks=2, collecting_ranks=[1])
def one_rank_collects(bench):
    """Two ranks reduce their gradients in every step; one of them collects."""
    reduced_steps(bench)


@case(8, 40 * 24, ranks=2)
def both_ranks_collect(bench):
    """Both collect, at different moments."""
    reduced_steps(bench)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--library", required=True, help="folder of the simulated libraries")
    parser.add_argument("--out", required=True, help="folder for what is recorded")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    function, moments, options.ranks = CASES[options.case]
    os.environ.setdefault("SIMGPU_DEVICES", str(options.ranks))
    if options.ranks > 1 and "RANK" not in os.environ:
        return start_ranks(options)
    try:
        os.nice(-10)  # Where it is allowed: other programs disturb less.
    except PermissionError:
        pass
    sys.setswitchinterval(0.0005)
    gc.disable()
    bench = Bench(options)
    for number in range(options.runs):
        bench.run(number, function, moments[bench.rank])
    with open(os.path.join(options.out, f"program.{bench.rank}.json"), "w") as file:
        json.dump(bench.record(), file)
    if bench.ranks is not None:
        bench.ranks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
