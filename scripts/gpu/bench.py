"""Shared by the parts: the binary, the training program, traces, tables.

A table is {"title", "head", "rows"}; a row ends in `ok`, `differs` or a remark.
"""

import collections
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# A model whose step takes milliseconds on a CPU.
SMALL = ("--layers", 1, "--width", 64, "--batch", 2)
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


class Skip(Exception):
    """A part cannot run here, for the reason given."""


def binary():
    """gctrace: in the bundle, or as named by GCTRACE."""
    named = os.environ.get("GCTRACE")
    return named or str(HERE / "bin/gctrace")


def device():
    """`cuda`, or `cpu` if torch sees no GPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def number_of_steps(measured, tried):
    """A number of steps: for a figure, or fewer without a GPU, where only the procedure is
    tested."""
    return measured if device() == "cuda" else tried


def as_markdown(table):
    def shown(value):
        if value is None:
            return "-"
        if isinstance(value, float):
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")

    head = table["head"]
    lines = ["", f"**{table['title']}**", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(map(shown, row)) + " |" for row in table["rows"]]
    return "\n".join(lines)


def read_json(path):
    path = pathlib.Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def percentile(values, share):
    """The value below which `share` of the values are (nearest rank); None if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def standard_error(values):
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


class Bench:
    """A part's view of the bundle: `work` is a folder that all parts share."""

    def __init__(self, work, part):
        self.work, self.part = pathlib.Path(work), part

    def path(self, name):
        return self.work / f"{self.part}-{name}"

    def run(self, command, check=True, **options):
        """Runs a command, logged; returns its output as text."""
        command = [str(word) for word in command]
        print("$", " ".join(command), flush=True)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **options)
        print(done.stdout[-4000:], flush=True)
        if check and done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}; see log.txt")
        return done

    def gctrace(self, *arguments, **options):
        return self.run([binary(), *arguments], **options)

    def training(self, name, *arguments):
        """The command of a training run, and the file its steps will be written to."""
        steps = self.path(f"{name}.steps.json")
        size = () if device() == "cuda" else SMALL
        return [sys.executable, str(HERE / "train.py"), "--out", str(steps), *map(str, (*size, *arguments))], steps

    def train(self, name, *arguments):
        """Trains unrecorded; returns the steps."""
        command, steps = self.training(name, *arguments)
        self.run(command)
        return read_json(steps)

    def record(self, name, *arguments, mode="inject", options=()):
        """Records a training run; returns (events, steps, path of the trace)."""
        command, steps = self.training(name, *arguments)
        trace = self.path(f"{name}.json.gz")
        self.gctrace("record", "--mode", mode, *options, "-o", trace, "--", *command)
        return read_json(trace)["traceEvents"], read_json(steps), trace

    def report(self, *traces):
        """`gctrace analyze` of traces, as data."""
        return json.loads(self.gctrace("analyze", "--format", "json", *traces).stdout)

    def keep(self, path, name):
        """Keeps a trace as a fixture."""
        shutil.copy(path, self.work / f"fixture-{name}")

    def lost(self, events):
        """The losses that the recording reports."""
        return next((event["args"]["lost"] for event in events if event["name"] == "gctrace_end"), {"end record": 1})


def window(steps):
    """(start, end) of the measured steps in microseconds."""
    return steps["blocks"][0]["start_ns"] / 1e3, steps["blocks"][-1]["end_ns"] / 1e3


def profiled_window(events):
    """The same in a trace of torch.profiler, by its clock."""
    measured = next(event for event in events if event.get("name") == "measured" and event.get("cat") == "user_annotation")
    return measured["ts"], measured["ts"] + measured["dur"]


def within(events, span, pid=None):
    start, end = span
    return [
        event
        for event in events
        if event.get("ph") == "X"
        and start <= event["ts"] <= end
        and (pid is None or pid in (event["pid"], event.get("args", {}).get("process")))
    ]


def operations(events):
    """GPU work by category and name: {(cat, name): count}."""
    return collections.Counter((event["cat"], event["name"]) for event in events if event.get("cat") in WORK)


def gpu_order(events):
    """GPU work in the order in which it ran."""
    return sorted((event for event in events if event.get("cat") in WORK), key=lambda event: event["ts"])
