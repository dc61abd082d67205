"""Writes the traces of a simulated job, one per rank and each on a clock of its own, and what is true.

    python3 tables_job.py FOLDER [RANKS [STEPS]]

Time is simulated forward on one clock; a rank's trace has the times of its own, which is up to half a
second off. Every collective starts on a rank when its stream is ready and ends on all together, but
for the microseconds by which clocks of GPUs are read wrongly. `truth.json`: offset of each clock, the
last rank of each collective and by how much it came after the one before. Nothing
here is shared with gctrace. Traces are gctrace's own format; times are whole nanoseconds.
"""

import json
import pathlib
import random
import sys

US, MS = 1_000, 1_000_000
# Time that examining the garbage of a full collection takes, part of the pause.
EXAMINING = 1_500
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FRAMES = [
    (1, None, "<module>", "train.py", 40),
    (2, 1, "Trainer.step", "train.py", 57),
    (3, 2, "collate", "/usr/lib/python3/dist-packages/torch/utils/data.py", 9),
]


class Rank:
    def __init__(self, number, offset, start):
        self.number, self.offset = number, offset  # Add `offset` to its times to get the job's.
        self.host = self.compute = start
        self.ids, self.events = 0, []
        self.pid = 1000 + number

    def event(self, ph, name, start=None, end=None, cat=None, args=None, pid=None, **more):
        fields = {"ph": ph, "cat": cat, "name": name, "pid": self.pid if pid is None else pid, "tid": self.pid}
        event = {key: value for key, value in fields.items() if value is not None}
        if start is not None:
            event["ts"] = start - self.offset
        if end is not None:
            event["dur"] = end - start
        self.events.append({**event, **more, "args": args or {}})

    def call(self, function, length):
        start = self.host
        self.host += length
        self.ids += 1
        self.event("X", function, start, self.host, "cuda_runtime", {"correlation": self.ids})
        return start

    def op(self, kind, name, start, end, **args):
        self.event("X", name, start, end, kind, {"device": 0, "stream": 7, "correlation": self.ids, "process": self.pid, **args})


def text(event):
    """One event as gctrace writes it: times in microseconds with three decimals."""
    times = {key: event.pop(key) for key in ("ts", "dur") if key in event}
    head = json.dumps(event, separators=(",", ":"))[:-1]
    return head + "".join(f',"{key}":{ns // 1000}.{ns % 1000:03}' for key, ns in times.items()) + "}"


def pause(chance, rank, step):
    """A full collection on every third step of one rank, else short young ones."""
    full = rank.number == step % 4 and step % 3 == 1
    length = chance.randint(8 * MS, 30 * MS) if full else chance.randint(50 * US, 400 * US)
    start = rank.host
    rank.host += length
    freed = chance.randint(0, 500) if full else 0
    if full:
        kinds = [{"kind": 1, "objects": freed, "bytes": freed * 64}]
        rank.event("M", "gctrace_garbage", start + 20 * US, args={"objects": freed, "kinds": kinds, "cost_ns": EXAMINING})
    args = {"reason": "automatic", "generation": 2 if full else 0, "collected": freed, "uncollectable": 0}
    args |= {"cpu_ns": length - 7 * US, "young_count": 700 + step, "heap_objects": 100_000 + step}
    rank.event("X", f"gc gen{args['generation']}", start, rank.host, "gc", args, sf=chance.choice([2, 3]))


def run(ranks, steps, seed=1):
    chance = random.Random(seed)
    zero = 100_000 * MS
    all_ranks = [Rank(number, 0 if number == 0 else chance.randint(-500 * MS, 500 * MS), zero) for number in range(ranks)]
    for rank in all_ranks:
        header = {"format": "gctrace.trace/1", "gctrace": "0.1.0", "command": ["python", "train.py"], "host": f"node{rank.number // 2}"}
        # Wall clocks of hosts agree to some milliseconds only.
        unix = 1_700_000_000_000_000_000 + zero + chance.randint(-20 * MS, 20 * MS)
        header |= {"rank": rank.number, "started_ns": zero - rank.offset, "started_unix_ns": unix}
        rank.event("M", "gctrace_header", zero, args=header, pid=0)
        interpreter = {"file": "/usr/bin/python3", "version": "3.13.1", "collector": "generational"}
        process = {"origin": "launched", "command": ["python", "train.py"], "rank": rank.number, "interpreter": interpreter}
        rank.event("M", "gctrace_process", zero, args=process)
        for number, parent, function, file, line in FRAMES:
            frame = {"id": number, "parent": parent, "function": function, "file": file, "line": line}
            rank.event("M", "gctrace_frame", args={key: value for key, value in frame.items() if value is not None}, pid=0)
        rank.event("M", "gctrace_object_kind", args={"id": 1, "type_name": "cell", "function": "Trainer.step", "file": "train.py", "line": 57})
    lasts = []
    for step in range(steps):
        begun = [rank.host for rank in all_ranks]
        for rank in all_ranks:
            rank.host += chance.randint(20 * US, 2 * MS)
            pause(chance, rank, step)
            rank.call("cudaMemcpyAsync", 9 * US)
            start = max(rank.compute, rank.host)
            rank.compute = start + 40 * US
            rank.op("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start, rank.compute, bytes=1 << 20)
            for _ in range(4):
                rank.host += chance.randint(10 * US, 60 * US)
                launch = rank.call("cudaLaunchKernel", 4 * US)
                start = max(rank.compute, launch + 5 * US)
                rank.compute = start + chance.randint(50 * US, 300 * US)
                rank.op("kernel", "gemm", start, rank.compute)
        starts = []
        for rank in all_ranks:
            before = rank.host
            launch = rank.call("cudaLaunchKernel", 4 * US)
            rank.event("X", "nccl:all_reduce", before, rank.host, "user_annotation")
            starts.append(max(rank.compute, launch + 5 * US))
        order = sorted(range(ranks), key=lambda number: starts[number])
        end = starts[order[-1]] + 300 * US
        lasts.append({"seq": step, "rank": order[-1], "lead_ns": starts[order[-1]] - starts[order[-2]]})
        for rank, start in zip(all_ranks, starts):
            rank.compute = end + chance.randint(0, 2 * US)
            collective = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": step, "Group size": ranks}
            rank.op("kernel", ALL_REDUCE, start, rank.compute, **collective)
            wait = rank.call("cudaStreamSynchronize", 2 * US)
            rank.host = max(rank.host, rank.compute + 4 * US)
            rank.events[-1]["dur"] = rank.host - wait
        for rank, start in zip(all_ranks, begun):
            rank.event("X", f"ProfilerStep#{step}", start, rank.host, "user_annotation")
    for rank in all_ranks:
        end = {"ended_ns": rank.host - rank.offset, "why": "the command ended", "lost": {}, "processes": {"python": 1, "other": 0}}
        rank.event("M", "gctrace_end", rank.host, args=end, pid=0)
    return all_ranks, lasts


def write(folder, ranks=4, steps=30):
    """Returns the traces and the truth."""
    all_ranks, lasts = run(ranks, steps)
    folder = pathlib.Path(folder)
    traces = []
    for rank in all_ranks:
        path = folder / f"rank{rank.number}.json"
        lines = ",\n".join(text(event) for event in rank.events)
        path.write_text('{"displayTimeUnit":"ns","traceEvents":[\n' + lines + "\n]}\n")
        traces.append(path)
    truth = {"offsets_ns": [rank.offset for rank in all_ranks], "lasts": lasts}
    (folder / "truth.json").write_text(json.dumps(truth))
    return traces, truth


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:]))
