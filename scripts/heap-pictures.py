#!/usr/bin/env python3
"""Draws the pictures of docs/pictures from the heap of a real program (tests/python/classics.py).

    scripts/heap-pictures.py [--gctrace PROGRAM] [--python PROGRAM] [--out FOLDER]

Needs graphviz, and what `gctrace heap -p` needs: the right to trace a process of one's own, or root. Addresses
differ from run to run, so the pictures do too.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# Picture -> what of the heap.
PICTURES = {
    "list-and-dict": ("--cycle", "dict"),
    "ring": ("--cycle", "Node"),
    "default-argument": ("--path", None),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gctrace", default=str(CHECKOUT / "target/debug/gctrace"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", default=str(CHECKOUT / "docs/pictures"))
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        heap = pathlib.Path(folder) / "classics.gcheap"
        program = subprocess.Popen(
            [options.python, str(CHECKOUT / "tests/python/classics.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        cache = program.stdout.readline().split()[1]
        subprocess.run([options.gctrace, "heap", "-p", str(program.pid), "-o", str(heap)], check=True)
        program.communicate("\n")
        for name, (what, target) in PICTURES.items():
            drawn = subprocess.run(
                [options.gctrace, "export", str(heap), what, target or cache], check=True, stdout=subprocess.PIPE)
            subprocess.run(["dot", "-Tsvg", "-o", str(out / ("%s.svg" % name))], check=True, input=drawn.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
