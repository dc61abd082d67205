"""Converts the simulated GPU's log of a run of replay_truth.py to traces of the PyTorch profiler.

    kineto_of_simgpu.py FOLDER

Reads FOLDER/program.<rank>.json and the simulator's FOLDER/log.<pid>.csv (format 2, described in
its crate), and writes per run and rank what the profiler would have written, in its format:
FOLDER/run<number>.rank<rank>.plain.json, and for runs with collections also
FOLDER/run<number>.rank<rank>.json, with the data that the profiler writes only on request (what
synchronizing calls waited for) or only in some versions (the numbers of collectives).
"""

import glob
import json
import os
import sys
from bisect import bisect_left, bisect_right

HEADER = "# gctrace-simgpu truth log 2"
CATEGORIES = {"kernel": "kernel", "collective": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset",
              # The profiler has none of these; gctrace's own traces do.
              "host": "gpu_host_function"}
LAYERS = {"runtime": "cuda_runtime", "driver": "cuda_driver"}
# Not in the profiler's traces: kineto drops them.
DROPPED = {"cudaGetDevice", "cudaSetDevice", "cudaGetLastError", "cudaEventCreate",
           "cudaEventCreateWithFlags", "cudaEventDestroy"}
CALL = ("function", "layer", "pid", "tid", "start", "end", "stream", "bytes", "x", "y", "z", "device",
        "correlation", "result", "event")
OP = ("kind", "name", "pid", "device", "handle", "stream", "launched", "start", "end", "correlation",
      "bytes", "awaited", "communicator", "number")
TEXTS = {"function", "layer", "kind", "name", "communicator"}
# Each rank's clock is this much ahead of the previous rank's, as if they ran on different hosts.
AHEAD_NS = 3_000_000
# CUPTI's id of the default stream of the first device.
DEFAULT_STREAM = 7


def read(path):
    """Calls and operations of a log, as dictionaries."""
    with open(path) as file:
        lines = file.read().splitlines()
    if lines[0] != HEADER:
        raise SystemExit(f"{path}: not a log of format 2: {lines[0]!r}")
    found = {"call": [], "op": []}
    for line in lines[1:]:
        kind, *fields = line.split(",")
        names = CALL if kind == "call" else OP
        found[kind].append({name: field if name in TEXTS else int(field, 0)
                            for name, field in zip(names, fields)})
    return found["call"], found["op"]


def outermost(calls):
    """The outermost driver and runtime calls; NCCL's are not in such a trace."""
    calls = sorted((call for call in calls if call["layer"] in LAYERS),
                   key=lambda call: (call["start"], -call["end"]))
    until, kept = {}, []
    for call in calls:
        if call["end"] > until.get(call["tid"], 0):
            until[call["tid"]] = call["end"]
            kept.append(call)
    return kept


class Trace:
    """A trace file under construction."""

    def __init__(self, program, waits):
        self.program, self.waits, self.events = program, waits, []
        offset_ns = program["unix_offset"] + program["rank"] * AHEAD_NS
        # Like the profiler: timestamps are relative to a round number.
        self.base_ns = offset_ns // 10**15 * 10**15
        self.shift_ns = offset_ns - self.base_ns

    def add(self, category, name, pid, tid, start, end, **arguments):
        timestamp, length = start + self.shift_ns, end - start
        self.events.append(
            f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},"pid":{pid},"tid":{tid},'
            f'"ts":{timestamp // 1000}.{timestamp % 1000:03},"dur":{length // 1000}.{length % 1000:03},'
            f'"args":{json.dumps(arguments)}}}')

    def add_call(self, call):
        self.add(LAYERS[call["layer"]], call["function"], call["pid"], call["tid"], call["start"],
                 call["end"], correlation=call["correlation"])

    def add_op(self, op):
        arguments = {"device": op["device"], "context": 1, "stream": op["stream"],
                     "correlation": op["correlation"]}
        if op["kind"] == "collective":
            arguments.update({"Collective name": "allreduce", "Process Group Name": "0",
                              "Group size": self.program["world_size"]})
            if self.waits:
                arguments["Seq"] = op["number"]
        elif op["kind"] not in ("kernel", "host"):
            arguments["bytes"] = op["bytes"]
        self.add(CATEGORIES[op["kind"]], op["name"] or "Host function", op["device"], op["stream"], op["start"],
                 op["end"], **arguments)

    def add_wait(self, call, name, stream, record=None):
        """`record`: the call that recorded the event that is waited for."""
        arguments = {"cuda_sync_kind": name, "stream": stream, "correlation": call["correlation"],
                     "device": call["device"]}
        if record is not None:
            arguments["wait_on_stream"] = stream_number(record)
            arguments["wait_on_cuda_event_record_corr_id"] = record["correlation"]
        self.add("cuda_sync", name, call["device"], stream, call["start"], call["end"], **arguments)

    def add_collection(self, pause):
        self.add("python_function", "Python GC", self.program["pid"], pause["tid"], pause["start"],
                 pause["end"], generation=pause["generation"], collected=pause["collected"])

    def write(self, path):
        program = self.program
        for tid, name in program["threads"].items():
            self.events.append(json.dumps({"ph": "M", "name": "thread_name", "pid": program["pid"],
                                           "tid": int(tid), "args": {"name": name}}))
        head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": self.base_ns}
        if program["world_size"] > 1:
            head["distributedInfo"] = {"backend": "nccl", "rank": program["rank"],
                                       "world_size": program["world_size"]}
        with open(path, "w") as file:
            file.write(json.dumps(head)[:-1] + ',"traceEvents":[\n' + ",\n".join(self.events) + "]}\n")


def stream_number(call):
    """CUPTI's id of the stream that a call refers to."""
    return call["stream"] & 0xffffffff or DEFAULT_STREAM


def waits(trace, calls, awaited):
    """What calls waited for. `awaited`: for waits in streams, the correlation ids of event and
    record."""
    by_correlation, latest = {call["correlation"]: call for call in calls}, {}
    for call in calls:
        function = call["function"].replace("cuda", "cu")
        if function.startswith("cuEventRecord"):
            latest[call["event"]] = call
        elif function.startswith("cuStreamWaitEvent"):
            record = by_correlation.get(awaited.get(call["correlation"]))
            trace.add_wait(call, "Stream Wait Event", stream_number(call), record)
        elif function == "cuEventSynchronize":
            trace.add_wait(call, "Event Sync", -1, latest.get(call["event"]))
        elif function == "cuStreamSynchronize":
            trace.add_wait(call, "Stream Sync", stream_number(call))
        elif function in ("cuDeviceSynchronize", "cuCtxSynchronize"):
            trace.add_wait(call, "Context Sync", -1)


def within(run, items, start="start"):
    """The items, sorted by their start, that are within a run; all of them end there."""
    starts = [item[start] for item in items]
    return items[bisect_left(starts, run["start"]):bisect_right(starts, run["end"])]


def convert(program, run, calls, ops, with_waits):
    """The trace of one run."""
    trace = Trace(program, with_waits)
    for call in calls:
        if call["function"] not in DROPPED:
            trace.add_call(call)
    for op in ops:
        if op["kind"] in CATEGORIES:
            trace.add_op(op)
    if with_waits:
        waits(trace, calls, {op["correlation"]: op["awaited"] for op in ops if op["kind"] == "wait"})
    for pause in within(run, program["collections"]):
        trace.add_collection(pause)
    for step, tid, start, end in run["steps"]:
        trace.add("user_annotation", f"ProfilerStep#{step}", program["pid"], tid, start, end)
    for name, tid, start, end in run["annotations"]:
        trace.add("user_annotation", name, program["pid"], tid, start, end)
    return trace


def main():
    folder, = sys.argv[1:]
    for path in sorted(glob.glob(os.path.join(folder, "program.*.json"))):
        with open(path) as file:
            program = json.load(file)
        calls, ops = read(os.path.join(folder, f"log.{program['pid']}.csv"))
        calls = outermost(calls)
        ops.sort(key=lambda op: op["launched"])
        for number, run in enumerate(program["runs"]):
            calls_of_run, ops_of_run = within(run, calls), within(run, ops, "launched")
            for form, with_waits in ((".plain", False), ("", True))[:1 + run["collecting"]]:
                trace = convert(program, run, calls_of_run, ops_of_run, with_waits)
                trace.write(os.path.join(folder, f"run{number}.rank{program['rank']}{form}.json"))


if __name__ == "__main__":
    main()
