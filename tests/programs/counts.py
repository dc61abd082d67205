"""Compares a trace with the processes' own counts (truth/sitecustomize.py).

For each time at which a process read its counters, the trace must contain exactly the collections
that had ended by then: by process, by generation, and the objects that they freed.
"""

import dataclasses
import pathlib

GENERATIONS = 3


@dataclasses.dataclass(frozen=True)
class Reading:
    """A process's own counters, one line of its file."""

    event: str
    before_ns: int
    after_ns: int
    collections: tuple[int, ...]
    collected: tuple[int, ...]


@dataclasses.dataclass
class Comparison:
    """`differences` are sentences; `missing` is the number of collections that the trace lacks."""

    processes: int = 0
    collections: int = 0
    missing: int = 0
    # Before the in-process library could see the interpreter: not compared.
    early: int = 0
    # Number of processes with gaps that the trace itself does not report.
    unsaid: int = 0
    too_many: list[str] = dataclasses.field(default_factory=list)
    differences: list[str] = dataclasses.field(default_factory=list)


def readings(folder):
    """By process; the readings of one that changed its user are merged in order of time."""
    processes = {}
    for file in pathlib.Path(folder).iterdir():
        pid = int(file.name.split(".")[0])
        for line in file.read_text().splitlines():
            event, *numbers = line.split()
            before, after, *counts = map(int, numbers)
            reading = Reading(event, before, after, tuple(counts[::2]), tuple(counts[1::2]))
            processes.setdefault(pid, []).append(reading)
    return {pid: sorted(own, key=lambda one: one.before_ns) for pid, own in processes.items()}


def spans(own, from_start):
    """Pairs of readings between which one interpreter counted; the first is None if it counted from
    its start."""
    images, previous = [], None
    for reading in own:
        if reading.event in ("start", "fork") or not images:  # a fork that Python did not make has none
            # After exec the counters start at 0. An interpreter that is started again in the same
            # process (embedded) starts at 0 too, but the end of the previous one is not counted
            # anywhere.
            fresh = reading.event == "start" and not from_start and (previous is None or previous.event == "exec")
            images.append([previous if fresh else None, None if fresh else reading, reading])
        else:
            images[-1][2] = reading
        previous = reading
    return images


def within(pauses, since_ns, until_ns, ended):
    """Collections and objects collected by generation."""
    counts, collected = [0] * GENERATIONS, [0] * GENERATIONS
    for pause in pauses:
        time = pause.end_ns if ended else pause.start_ns
        if since_ns <= pause.start_ns and time <= until_ns:
            counts[pause.generation] += 1
            collected[pause.generation] += pause.collected or 0
    return tuple(counts), tuple(collected)


def compare(trace, folder, from_start):
    """`from_start`: collections before an interpreter imported `site` are not expected in the
    trace."""
    result = Comparison()
    for pid, own in sorted(readings(folder).items()):
        result.processes += 1
        pauses = trace.of(pid)
        if from_start and own[0].event == "start":
            seen = sum(pause.end_ns <= own[0].before_ns for pause in pauses or [])
            result.early += max(sum(own[0].collections) - seen, 0)
        for before, base, last in spans(own, from_start):
            missing = compare_span(result, pid, pauses or [], before, base, last)
            result.missing += missing
            result.unsaid += 0 if trace.unexamined or trace.hosts(pid) & trace.incomplete else missing
    return result


def compare_span(result, pid, pauses, before, base, last):
    """Number of missing collections."""
    since = (base or before).after_ns if base or before else 0
    zero = (0,) * GENERATIONS
    start, start_collected = (base.collections, base.collected) if base else (zero, zero)
    truth = tuple(end - begun for end, begun in zip(last.collections, start))
    freed = tuple(end - begun for end, begun in zip(last.collected, start_collected))
    least, least_freed = within(pauses, since, last.before_ns, ended=True)
    most, _ = within(pauses, since, last.after_ns, ended=False)
    result.collections += sum(truth)
    if any(number < low for number, low in zip(truth, least)):
        result.too_many.append(f"process {pid}: {least} collections in the trace, {truth} ran")
    missing = sum(max(number - high, 0) for number, high in zip(truth, most))
    if missing:
        result.differences.append(f"process {pid}: {most} collections in the trace, {truth} ran")
    elif least == most == truth and least_freed != freed:
        result.too_many.append(f"process {pid}: {least_freed} objects freed in the trace, {freed} were")
    return missing
