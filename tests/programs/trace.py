"""Reads the parts of a trace that the tier compares: pauses by process. The format:
docs/trace-format.md.

Nothing here compares; see counts.py.
"""

import dataclasses
import gzip
import json
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Pause:
    """One collection. Timestamps in nanoseconds of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    generation: int
    collected: int | None


@dataclasses.dataclass
class Trace:
    """A trace; `ended`: whether it was closed properly."""

    pauses: dict[int, list[Pause]]
    namespace_pids: dict[int, int]
    ended: bool
    # Processes for which the trace reports that collections may be missing.
    incomplete: set[int]
    # Number of other processes that it reports as not examined in time.
    unexamined: int

    def of(self, pid):
        """Pauses of a process by its own pid; None if the trace does not contain it."""
        known = self.hosts(pid)
        if not known:
            return None
        return sorted((pause for host in known for pause in self.pauses.get(host, [])), key=lambda one: one.start_ns)

    def hosts(self, pid):
        """The outer pids of the processes with this own pid."""
        return {host for host, own in self.namespace_pids.items() if pid in (host, own)}


def nanoseconds(text):
    """Converts microseconds as written in the file, exactly."""
    whole, _, fraction = str(text).partition(".")
    return int(whole) * 1000 + int(fraction[:3].ljust(3, "0"))


def read(path):
    raw = pathlib.Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    trace = Trace({}, {}, False, set(), 0)
    for event in json.loads(raw, parse_float=str)["traceEvents"]:
        name, pid, args = event.get("name"), event.get("pid"), event.get("args", {})
        if event.get("cat") == "gc" and event.get("ph") == "X":
            start = nanoseconds(event["ts"])
            pause = Pause(start, start + nanoseconds(event["dur"]), args["generation"], args.get("collected"))
            trace.pauses.setdefault(pid, []).append(pause)
        elif name == "gctrace_process":
            trace.namespace_pids[pid] = int(args.get("namespace_pid", pid))
        elif name == "gctrace_note":
            if re.search("missing|collections (were not|are no longer) recorded", args["message"]):
                trace.incomplete.add(pid)
        elif name == "gctrace_end":
            trace.ended = True
            trace.unexamined = sum(map(int, args.get("processes", {}).get("unexamined", {}).values()))
    return trace
