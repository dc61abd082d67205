"""Writes profiles of the ranks of a job, as PyTorch 2.12 would, simulated forward.

    python3 scripts/bench/generate_ranks.py FOLDER --ranks 32 [--group 8] [--unnamed]

Each step has all-reduces of neighboring ranks (--group of them) and a last one of all ranks, with
kernels between them; the host waits at the end of each step, and collects in one of ten on average.
Hosts' clocks differ by milliseconds. With --free the host waits only where the queue of launches is
full. With --unnamed the same profiles without the names and numbers of collectives, as before PyTorch
2.4. `analysis/examples/ranks_truth.rs` compares.
"""

import argparse
import collections
import json
import pathlib
import random

US = 1_000
MS = 1_000_000
COMPUTE, OF_ALL, OF_FEW = 7, 20, 22
# Launches that CUDA's queue takes (analysis/src/gpu/replay/queue_limit.rs).
QUEUE = 1024
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_cublas"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


class Rank:
    def __init__(self, folder, rank, ranks, is_free):
        self.is_free = is_free
        self.queued_ns = collections.deque()
        self.random = random.Random(rank)
        self.pid = 4000 + rank
        self.clock_ns = rank * 3 * MS + self.random.randrange(MS)
        self.host_ns = 1_000 * MS + rank * 37 * US
        self.done_ns = {COMPUTE: 0, OF_ALL: 0, OF_FEW: 0}
        self.numbers = {}
        self.id = 0
        self.file = open(folder / f"rank{rank:05}.json", "w")
        job = {"backend": "nccl", "rank": rank, "world_size": ranks}
        head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0}
        head["distributedInfo"] = job
        self.file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')

    def event(self, category, name, pid, tid, start_ns, end_ns, **args):
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
        event["ts"] = (start_ns + self.clock_ns) / US
        event["dur"] = (end_ns - start_ns) / US
        event["args"] = args
        self.file.write(json.dumps(event) + ",\n")

    def on_host(self, category, name, start_ns, **args):
        self.event(category, name, self.pid, self.pid, start_ns, self.host_ns, **args)

    def call(self, name, start_ns):
        self.id += 1
        self.on_host("cuda_runtime", name, start_ns, correlation=self.id)

    def launch(self):
        """Returns when the kernel may start."""
        self.host_ns += self.random.randrange(3 * US, 9 * US)
        start_ns = self.host_ns
        if len(self.queued_ns) == QUEUE:
            self.host_ns = max(self.host_ns, self.queued_ns.popleft())
        self.host_ns += 3 * US
        self.call("cudaLaunchKernel", start_ns)
        return self.host_ns + 2 * US

    def kernel(self, name, stream, start_ns, end_ns, **args):
        self.done_ns[stream] = end_ns
        if self.is_free:
            self.queued_ns.append(start_ns)
        args.update(device=0, stream=stream, correlation=self.id)
        self.event("kernel", name, 0, stream, start_ns, end_ns, **args)

    def compute(self, kernels):
        for _ in range(kernels):
            start_ns = max(self.launch(), self.done_ns[COMPUTE])
            end_ns = start_ns + self.random.randrange(5 * US, 20 * US)
            self.kernel(GEMM, COMPUTE, start_ns, end_ns)

    def wait(self, stream, other):
        start_ns = self.host_ns
        self.host_ns += US
        self.call("cudaEventRecord", start_ns)
        recorded, start_ns = self.id, self.host_ns
        self.host_ns += US
        self.call("cudaStreamWaitEvent", start_ns)
        args = {"stream": stream, "device": 0, "correlation": self.id, "wait_on_stream": other}
        args["wait_on_cuda_event_record_corr_id"] = recorded
        self.event("cuda_sync", "Stream Wait Event", 0, stream, start_ns, self.host_ns, **args)
        self.done_ns[stream] = max(self.done_ns[stream], self.done_ns[other])

    def end_step(self, step, begun_ns, streams):
        for stream in streams:
            self.wait(COMPUTE, stream)
        if self.random.random() < 0.1:
            start_ns = self.host_ns
            self.host_ns += self.random.randrange(5 * MS, 40 * MS)
            self.on_host("python_function", "Python GC", start_ns, generation=2, collected=0)
        if not self.is_free:
            start_ns = self.host_ns + 2 * US
            self.host_ns = max(start_ns, self.done_ns[COMPUTE]) + 4 * US
            self.call("cudaStreamSynchronize", start_ns)
        self.on_host("user_annotation", f"ProfilerStep#{step}", begun_ns)


def all_reduce(ranks, stream, group, is_named):
    starts_ns = []
    for rank in ranks:
        rank.wait(stream, COMPUTE)
        before_ns = rank.host_ns
        starts_ns.append(max(rank.launch(), rank.done_ns[stream]))
        rank.on_host("user_annotation", "nccl:all_reduce", before_ns)
    for rank, start_ns in zip(ranks, starts_ns):
        number = rank.numbers[group] = rank.numbers.get(group, 0) + 1
        args = {}
        if is_named:
            args = {"Collective name": "allreduce", "Process Group Name": group, "Seq": number}
            args["Group size"] = len(ranks)
        end_ns = max(starts_ns) + 150 * US + rank.random.randrange(2 * US)
        rank.kernel(ALL_REDUCE, stream, start_ns, end_ns, **args)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--group", type=int, default=8, help="ranks of a small communicator")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--collectives", type=int, default=15, help="of each step")
    parser.add_argument("--kernels", type=int, default=30, help="before each collective")
    parser.add_argument("--free", action="store_true", help="hosts do not wait for their GPUs")
    parser.add_argument("--unnamed", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    ranks = [Rank(args.folder, rank, args.ranks, args.free) for rank in range(args.ranks)]
    for step in range(args.steps):
        begun_ns = [rank.host_ns for rank in ranks]
        for collective in range(1, args.collectives + 1):
            for rank in ranks:
                rank.compute(args.kernels)
            if collective == args.collectives:
                all_reduce(ranks, OF_ALL, "0", not args.unnamed)
                continue
            for first in range(0, args.ranks, args.group):
                few = ranks[first : first + args.group]
                all_reduce(few, OF_FEW, f"few_{first}", not args.unnamed)
        for rank, start_ns in zip(ranks, begun_ns):
            rank.end_step(step, start_ns, [OF_ALL, OF_FEW])
    for rank in ranks:
        rank.file.write('{"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {}}\n]}\n')
        rank.file.close()


if __name__ == "__main__":
    main()
