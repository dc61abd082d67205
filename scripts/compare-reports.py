#!/usr/bin/env python3
"""Compares every figure of two builds' JSON reports.

    compare-reports.py BEFORE AFTER TRACE...      BEFORE, AFTER: gctrace binaries

Numbers, booleans and nulls must be equal and in the same places; text may differ. Fields may be renamed as
CHANGELOG.md lists them under "Renamed JSON fields": lines `- \\`old\\` -> \\`new\\``. Prints how many figures each
trace has. Exit code 1 if a figure differs.
"""

import json
import pathlib
import re
import subprocess
import sys

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


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    before, after, *traces = sys.argv[1:]
    names, different, total = renamed(), 0, 0
    for trace in traces:
        old = dict(figures(report(before, trace), names))
        new = dict(figures(report(after, trace), {}))
        wrong = [path for path in sorted({*old, *new}) if path not in old or path not in new or old[path] != new[path]]
        different += len(wrong)
        total += len(new)
        print(f"{pathlib.Path(trace).name}: {len(new)} figures, {len(wrong)} differ")
        for path in wrong[:10]:
            print(f"  {path}: {old.get(path, 'missing')} before, {new.get(path, 'missing')} after")
    print(f"{total} figures of {len(traces)} traces, {different} differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
