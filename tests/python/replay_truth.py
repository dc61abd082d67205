"""The actual cost of collections: the same work on the simulated GPU with and without them.

    replay_truth.py CASE --library DIR --out DIR [--runs 10]

Repeats a piece of training RUNS times in one process. Even runs collect at fixed points of the
work, by gc.collect() over a large heap (the case `automatic`: by the collector itself; the cases
from `item` on make the GPU idle otherwise); odd runs do the same without. All else is equal, so the difference in duration is the cost of the collections.

Writes DIR/program.<rank>.json: processes and threads, runs, steps, and collections as seen by
gc.callbacks, all in CLOCK_MONOTONIC nanoseconds. The simulated GPU writes its own log (SIMGPU_LOG).
"""

import argparse
import ctypes
import gc
import json
import os
import queue
import random
import sys
import threading
import time
from ctypes import c_int64, c_void_p

from replay_bench import Bench, cycles
from train_simgpu import TO_DEVICE, TO_HOST, Dataset, Network, Tensor, start_ranks

# The cases. Each is a function of the bench, with the launches before which it collects.

CASES = {}


def case(count, launches, ranks=1, collecting_ranks=None, first=(), together=False):
    """Adds a case with this many launches that collects before `count` of them, and before
    `first`."""

    def add(function):
        rng = random.Random(function.__name__)

        def collect_at(rank):
            some = sorted(rng.sample(range(1, launches), count))
            mine = collecting_ranks is None or rank in collecting_ranks
            return [*first, *some] if mine else []

        by_rank = [collect_at(rank) for rank in range(ranks)]
        CASES[function.__name__] = (function, by_rank[:1] * ranks if together else by_rank, ranks)
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
    """The host is so far ahead that the launch queue blocks it."""
    for _ in bench.steps(40):
        for _ in range(80):
            bench.launch("even", after_us=14)


@case(6, 12)
def deferred(bench):
    """A pause covered by queued work; its cost is deferred to a later host-bound part."""
    for step in bench.steps(12):
        for at in range(200):
            if at == 150 and step in bench.collect_at and bench.collecting:
                gc.collect()
            bench.host.work(30)
            bench.device.launch("longer")
        for _ in range(200):
            bench.host.work(115)
            bench.device.launch("short")


@case(8, 40 * 20)
def legacy_stream(bench):
    """Kernels in the default stream; a blocking copy of the result ends every step."""
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", bench.default_stream, after_us=25)
        bench.host.work(20)
        bench.call(bench.cuda, "cudaMemcpy", None, 4096, 4, TO_HOST)


@case(0, 40 * 20)
def item(bench):
    """Every step ends with a wait for its result, as `.item()` does, and 400 us of Python; in odd runs
    with the latter only. Nothing is collected."""
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=25)
        if bench.collecting:
            bench.wait()
        bench.host.work(400)


# The remedies of the idle ledger: even runs are without, odd runs with. Nothing is collected.


@case(0, 40 * 20)
def blocking_copy(bench):
    """A batch is copied to the GPU in each step, and the host waits for that, or does not."""
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", bench.default_stream, after_us=25)
        if bench.collecting:
            bench.call(bench.cuda, "cudaMemcpy", None, None, 1 << 20, TO_DEVICE)
        else:
            bench.cuda("cudaMemcpyAsync", None, None, 1 << 20, TO_DEVICE, None)
        bench.host.work(400)


@case(0, 40 * 20)
def host_functions(bench):
    """The stream has the host run a function of 2 ms after each step, or goes on."""
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, c_void_p)
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=25)
        if bench.collecting:
            bench.cuda("cudaLaunchHostFunc", c_void_p(bench.device.streams[0]), sleep, c_void_p(2000))


@case(0, 40 * 20)
def emptied_cache(bench):
    """Each step frees its memory and reserves it again, or keeps it."""
    address = bench.cuda.handle("cudaMalloc", 1 << 20)
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=25)
        if bench.collecting:
            bench.call(bench.cuda, "cudaFree", address)
            address = bench.cuda.handle("cudaMalloc", 1 << 20)
        bench.host.work(400)


@case(0, 40 * 20)
def slow_loader(bench):
    """Every fourth batch takes its time, or is there."""
    for step in bench.steps(40):
        if bench.collecting and step % 4 == 3:
            bench.annotated("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 9000)
        for _ in range(20):
            bench.launch("long", after_us=25)


@case(0, 40 * 20)
def checkpoints(bench):
    """Two checkpoints in the loop, or in the background."""
    for step in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=25)
        if bench.collecting and step in (15, 30):
            bench.annotated("save_checkpoint", 80_000)


@case(0, 40 * 20)
def launched_singly(bench):
    """Twenty launches a step, more work for the host than for the GPU, or one graph."""
    for _ in bench.steps(40):
        if bench.collecting:
            for _ in range(20):
                bench.launch("even", after_us=80)
        else:
            bench.host.work(80)
            bench.cuda("cudaGraphLaunch", bench.graph, bench.device.streams[0])


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
    """Like automatic differentiation: another thread launches the second half while this one
    waits."""
    asked, done = queue.SimpleQueue(), queue.SimpleQueue()

    def backward():
        bench.cuda("cudaSetDevice", bench.rank)
        while asked.get():
            bench.host.begin()
            for _ in range(20):
                bench.launch("long", after_us=40)
            done.put(True)

    thread = bench.start("backward", backward)
    for _ in bench.steps(40):
        for _ in range(20):
            bench.launch("long", after_us=40)
        asked.put(True)
        done.get()
        bench.host.begin()
        bench.wait()
    asked.put(False)
    thread.join()


def loader(bench, processors=None):
    """Starts a thread that collects on request; returns how to request and how to end it."""
    asked, collecting = queue.SimpleQueue(), bench.collecting
    bench.collecting = False
    processors = processors or os.sched_getaffinity(0)

    def serve():
        os.sched_setaffinity(0, processors)
        while asked.get():
            if collecting:
                gc.collect()

    thread = bench.start("loader", serve)

    def end():
        asked.put(False)
        thread.join()

    return lambda: asked.put(True), end


@case(8, 30 * 80)
def loader_thread(bench):
    """Another thread collects, like a data loader; this one cannot continue meanwhile."""
    collect, end = loader(bench)
    for _ in bench.steps(30):
        for _ in range(80):
            if bench.launches in bench.collect_at:
                collect()
            bench.launch("even", after_us=60)
    end()


@case(6, 14)
def waiting_for_data(bench):
    """Another thread collects while this one waits for something else anyway."""
    collect, end = loader(bench)
    for step in bench.steps(14):
        if step in bench.collect_at:
            collect()
        time.sleep(0.03)
        bench.host.begin()
        for _ in range(80):
            bench.launch("even", after_us=40)
        bench.wait()
    end()


@case(6, 12)
def native_thread(bench):
    """A thread without Python launches the second half; another collects meanwhile, which blocks
    Python only."""
    # With two CPUs the threads do not compete for one.
    processors = sorted(os.sched_getaffinity(0))
    collect, end = loader(bench, processors[:1])
    asked, done = queue.SimpleQueue(), queue.SimpleQueue()
    launch = ctypes.cast(bench.cuda.runtime.cudaLaunchKernel, c_void_p)

    def backward():
        os.sched_setaffinity(0, processors[-1:])
        bench.cuda("cudaSetDevice", bench.rank)
        while asked.get():
            # ctypes releases the GIL during the call.
            bench.native.launch_loop(launch, c_void_p(bench.device.kernels["even"]),
                                     c_void_p(bench.device.streams[0]), 400, c_int64(40_000))
            done.put(True)

    thread = bench.start("backward", backward)
    for step in bench.steps(12):
        for _ in range(20):
            bench.host.work(60)
            bench.device.launch("even")
        asked.put(True)
        time.sleep(0.001)
        if step in bench.collect_at:
            collect()
        done.get()
        bench.host.begin()
        bench.wait()
    asked.put(False)
    thread.join()
    end()


@case(6, 40 * 121)
def training(bench):
    """The training of examples/train_simgpu.py, at the pace of Python; its examples are the heap."""
    network = Network(bench.device, 24, 1 << 20)
    dataset = Dataset(random.Random(1), 1_000, 200)
    launch = bench.device.launch
    bench.device.launch = lambda *arguments: (bench.maybe_collect(), launch(*arguments))
    for step in bench.steps(40):
        dataset.batch()
        inputs = output = Tensor(bench.device, 1 << 20)
        bench.cuda("cudaMemcpyAsync", inputs.address, None, 1 << 20, TO_DEVICE, bench.device.streams[0])
        output = network(inputs)
        bench.device.launch("loss")
        output.backward()
        for _ in range(24):
            bench.device.launch("sgd")
        while output is not None:
            # Freed at once what the collector would have to find: both runs use the same memory.
            output.children.clear()
            output = output.parents[0] if output.parents else None
        if step % 4 == 3:
            bench.wait()
    bench.device.launch = launch


@case(8, 60 * 20)
def graphs(bench):
    """Each step launches one captured graph of twenty kernels; sixty steps, with a wait in every
    fourth."""
    stream = bench.device.streams[0]
    for step in bench.steps(60):
        for _ in range(20):
            bench.host.work(30)
            bench.maybe_collect()
        bench.cuda("cudaGraphLaunch", bench.graph, stream)
        if step % 4 == 3:
            bench.wait()


@case(0, 30)
def automatic(bench):
    """The collector itself decides when, once in the middle of each step's objects; it is on or
    off."""
    thresholds = gc.get_threshold()
    gc.set_threshold(7_000, 1000, 1000)
    if bench.collecting:
        gc.enable()
    kept, shared = [None, None], []
    for step in bench.steps(30):
        bench.host.work(500)
        kept[step % 2] = [[shared] * 50 for _ in range(8_000)]
        bench.host.work(6_000)
        for _ in range(20):
            bench.launch("even", after_us=20)
        if step % 2:
            bench.wait()
    gc.disable()
    gc.set_threshold(*thresholds)


def reduced_steps(bench, slow_loader=False):
    for step in bench.steps(40):
        if slow_loader and bench.collecting and step % 4 == 3:
            bench.annotated("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 9000)
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


@case(0, 40 * 24, ranks=2)
def one_rank_loads_slowly(bench):
    """Two ranks reduce their gradients in every step; every fourth batch of one takes its time, or is
    there."""
    reduced_steps(bench, slow_loader=bench.rank == 1)


@case(8, 40 * 24, ranks=2)
def both_ranks_collect(bench):
    """Both collect, at different times."""
    reduced_steps(bench)


@case(8, 40 * 24, ranks=2, together=True)
def ranks_collect_together(bench):
    """Both collect at the same times, so that neither waits long for the other."""
    reduced_steps(bench)


def go_first():
    """Raises the priority, if permitted: other programs disturb less."""
    try:
        os.nice(-10)
        # Linux weighs sessions before it weighs their processes (sched(7), "The autogroup feature").
        os.setsid()
        with open("/proc/self/autogroup", "w") as file:
            file.write("-10")
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--library", required=True, help="folder of the simulated libraries")
    parser.add_argument("--out", required=True, help="folder for what is recorded")
    parser.add_argument("--native", help="launch_loop.c as a library, for native_thread")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    function, collect_at, options.ranks = CASES[options.case]
    os.environ.setdefault("SIMGPU_DEVICES", str(options.ranks))
    if options.ranks > 1 and "RANK" not in os.environ:
        return start_ranks(options)
    go_first()
    sys.setswitchinterval(0.0005)
    gc.disable()
    bench = Bench(options)
    for number in range(options.runs):
        bench.run(number, function, collect_at[bench.rank])
    with open(os.path.join(options.out, f"program.{bench.rank}.json"), "w") as file:
        json.dump(bench.record(), file)
    if bench.ranks is not None:
        bench.ranks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
