"""Runs the program in place of this interpreter."""

import os
import sys

from gctrace import find_bin

if __name__ == "__main__":
    program = find_bin()
    os.execv(program, [program] + sys.argv[1:])
