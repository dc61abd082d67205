"""A short program with many collections, which records its own counts in a folder.

    python3 garbage.py FOLDER
"""

import gc
import os
import runpy
import sys

TRUTH = "../../tests/programs/truth/sitecustomize.py"
HERE = os.path.dirname(os.path.abspath(__file__))


class Node:
    """An object of a cycle."""

    def __init__(self):
        self.other = self


runpy.run_path(os.path.join(HERE, TRUTH))["install"](sys.argv[1])
for _ in range(60000):
    Node()
for generation in (0, 1, 2) * 7:
    Node()
    gc.collect(generation)
