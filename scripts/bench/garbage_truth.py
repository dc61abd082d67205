#!/usr/bin/env python3
"""Runs the tests that compare garbage and heaps with what each interpreter reports, and writes what
they compared to the table of docs/measurements/garbage-and-heaps.md.

    sudo scripts/bench/garbage_truth.py

A test prints a cell once its comparison has passed (`compared`, tests/kit/src/interpreters.rs);
`refused` where it checked that gctrace refuses the build. A cell that no test printed is empty: the
lines below the table are the reasons that the tests gave. Exit code: 1 if a test failed.
"""

import pathlib
import re
import subprocess
import sys

import manifest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = CHECKOUT / "docs/measurements/garbage-and-heaps.md"
# The table in DOCUMENT is between these lines.
BEGIN, END = "<!-- garbage_truth.py: begin -->\n", "<!-- garbage_truth.py: end -->\n"

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
    lines = ["| interpreter | CPython | build | %s |\n" % " | ".join(COLUMNS),
             "|---|---|---|%s\n" % ("---:|" * len(COLUMNS))]
    known = {name for name, *_ in manifest.interpreters()}
    for name, version, build, _ in manifest.interpreters():
        own = [number(cells.get((name, column), "")) for column in COLUMNS]
        lines.append("| %s | %s | %s | %s |\n" % (name, version, build, " | ".join(own)))
    reasons = [reason for reason in reasons if reason.partition(":")[0] in known]
    lines += ["\nNot run in-process:\n\n"] + ["- %s\n" % reason for reason in reasons] if reasons else []
    text = DOCUMENT.read_text()
    head, found, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not found or not ended:
        sys.exit("garbage_truth: %s has no table between its marks" % DOCUMENT)
    DOCUMENT.write_text(head + BEGIN + "".join(lines) + END + tail)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
