#!/usr/bin/env python3
"""Runs the tests that compare garbage and heaps with what each interpreter reports, and writes what
they compared to scripts/bench/results/garbage-truth.csv.

    sudo scripts/bench/garbage_truth.py

A test prints a cell once its comparison has passed (`compared`, tests/kit/src/interpreters.rs);
`refused` where it checked that gctrace refuses the build. A cell that no test printed is empty; standard
output has the reasons that the tests gave. Exit code: 1 if a test failed.
"""

import csv
import pathlib
import re
import subprocess
import sys

import manifest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TABLE = CHECKOUT / "scripts/bench/results/garbage-truth.csv"

# Package, tier, and the tests that print cells.
TESTS = [
    ("gctrace-inject", "plain",
     ["garbage::kinds_", "garbage::automatic_", "garbage::nothing_of_it_can_be_seen", "garbage_cycles::planted_", "garbage_cycles::components_"]),
    ("gctrace", "kernel", ["garbage::"]),
    ("gctrace-heap", "plain", ["nodes_and_edges_", "garbage_is_found_", "free_threaded_builds_"]),
]
COLUMNS = ["types, in-process", "kinds, in-process", "objects, in-process", "signatures", "cycles",
           "kinds, probes", "objects, probes", "heap: objects", "heap: references", "heap: garbage"]


def run(package, tier, names):
    """Standard output and standard error of these tests, and whether they passed."""
    command = ["cargo", "test", "--quiet", "-p", package, "--test", tier, "--", "--show-output", *names]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return done.stdout, done.returncode == 0


def number(cell):
    return re.sub(r"\d+", lambda digits: format(int(digits[0]), ","), cell)


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    cells, reasons, passed = {}, {}, True
    for test in TESTS:
        text, is_passed = run(*test)
        passed &= is_passed
        # The last one counts: of heaps the one with objects frozen by gc.freeze().
        for name, column, cell in re.findall(r"^compared\t(.+)\t(.+)\t(.+)$", text, re.MULTILINE):
            cells[name, column] = cell
        for reason in re.findall(r"^skipped \w+: (.+)$", text, re.MULTILINE):
            reasons.setdefault(reason)
    rows = [(name, version, build, *(number(cells.get((name, column), "")) for column in COLUMNS))
            for name, version, build, _ in manifest.interpreters()]
    with open(TABLE, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("interpreter", "CPython", "build", *COLUMNS), *rows])
    known = {row[0] for row in rows}
    for reason in reasons:
        if reason.partition(":")[0] in known:
            print("not run in-process:", reason)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
