#!/usr/bin/env python3
"""Compares the trace of garbage.py with the program's own gc.get_stats().

    truth.py TRACE FOLDER MODE

Every collection must be in the trace, by generation, with what it freed: with kernel probes from
the interpreter's start, else from the program's first line. Fails if the program made fewer
collections than garbage.py itself calls for, or none in the trace.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/programs"))
import counts  # noqa: E402
import trace as traces  # noqa: E402

# Calls of gc.collect in garbage.py.
EXPLICIT = 21


def main():
    path, folder, mode = sys.argv[1:]
    trace = traces.read(path)
    result = counts.compare(trace, folder, from_start=mode == "inject")
    problems = result.differences + result.too_many
    if not trace.ended:
        problems.append("the trace was not closed")
    if result.processes != 1 or result.collections < EXPLICIT:
        problems.append(f"{result.processes} processes made {result.collections} collections")
    if problems:
        sys.exit("; ".join(problems))
    print(f"{result.collections} collections, all in the trace")


if __name__ == "__main__":
    main()
