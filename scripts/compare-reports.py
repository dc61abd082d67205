#!/usr/bin/env python3
"""Compares every figure of two builds' JSON reports, or of their live views.

    compare-reports.py BEFORE AFTER TRACE...      BEFORE, AFTER: gctrace binaries
    compare-reports.py --top BEFORE AFTER         of a program with a fixed number of collections

Numbers, booleans and nulls must be equal and in the same places; text may differ. Fields may be renamed as
CHANGELOG.md lists them under "Renamed JSON fields": lines `- \\`old\\` -> \\`new\\``. Prints how many figures each
trace has. Exit code 1 if a figure differs. With --top, counts are compared; other figures that
differ are listed, except histograms.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

PROGRAM = """
import gc
gc.disable()
for generation in 20 * [0] + 10 * [1] + 5 * [2]:
    ring = []
    ring.append(ring)
    del ring
    gc.collect(generation)
"""
# Lengths of pauses, ids, memory, and what the start of an interval decides.
VARIES = re.compile(r"_ns\b|ppm|_bytes|histogram|interval_|history|long_pauses|worst|pid|parent")

CHANGELOG = pathlib.Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def renamed():
    """Old name -> new name."""
    _, _, section = CHANGELOG.read_text().partition("Renamed JSON fields")
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    return dict(re.findall(r"^- `(\w+)` -> `(\w+)`$", section, re.MULTILINE))


def report(binary, trace):
    done = subprocess.run([binary, "analyze", "--format", "json", trace], capture_output=True, text=True)
    if done.returncode != 0:
        return {"exit code": done.returncode}
    return json.loads(done.stdout)


def last_snapshot(binary):
    """The last line of `gctrace top`, in-process, so that anyone can run it."""
    command = [binary, "top", "--mode", "inject", "--format", "json", "--", sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def figures(value, names, path=""):
    """(path, figure) of everything that is no text; containers by their size."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from figures(member, names, f"{path}.{names.get(key, key)}")
    elif isinstance(value, list):
        yield f"{path}.length", len(value)
        for number, item in enumerate(value):
            yield from figures(item, names, f"{path}[{number}]")
    else:
        yield path, "text" if isinstance(value, str) else value


def compare(name, old, new):
    """Prints what differs, and returns how many figures do."""
    wrong = [path for path in sorted({*old, *new}) if path not in old or path not in new or old[path] != new[path]]
    print(f"{name}: {len(new)} figures, {len(wrong)} differ")
    for path in wrong[:10]:
        print(f"  {path}: {old.get(path, 'missing')} before, {new.get(path, 'missing')} after")
    return len(wrong)


def compare_top(before, after):
    old, new = (dict(figures(last_snapshot(binary), {})) for binary in (before, after))
    for path in sorted(path for path in {*old, *new} if VARIES.search(path)):
        times = old.pop(path, "missing"), new.pop(path, "missing")
        if times[0] != times[1] and "histogram" not in path:
            print(f"  {path}: {times[0]} before, {times[1]} after")
    return compare("top", old, new)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if sys.argv[1] == "--top":
        sys.exit(1 if compare_top(*sys.argv[2:4]) else 0)
    before, after, *traces = sys.argv[1:]
    names, different, total = renamed(), 0, 0
    for trace in traces:
        old = dict(figures(report(before, trace), names))
        new = dict(figures(report(after, trace), {}))
        different += compare(pathlib.Path(trace).name, old, new)
        total += len(new)
    print(f"{total} figures of {len(traces)} traces, {different} differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
