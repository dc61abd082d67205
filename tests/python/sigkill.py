"""Ends by SIGKILL, without any chance to clean up.

    sigkill.py TRUTH.json [--inside]

Plain: twelve collections, then the truth, then the end. With --inside it ends in the middle of a
thirteenth, triggered by a finalizer of an unreachable cycle; `unfinished_start_ns` in the truth is
the start of that one (see recorder.py for the meaning of a callback's time).
"""

import os
import signal
import sys

from recorder import Recorder
from recorder import collect
from recorder import garbage
from recorder import hold_automatic


def main():
    path, inside = sys.argv[1], "--inside" in sys.argv[2:]
    recorder = Recorder().install()
    hold_automatic()
    for turn in range(12):
        garbage(100)
        collect(turn % 3)

    def end(**extra):
        recorder.finish(path, **extra)
        os.kill(os.getpid(), signal.SIGKILL)

    class Last:
        def __del__(self):
            (unfinished,) = recorder.open.values()
            end(unfinished_start_ns=unfinished["start_ns"])

    if inside:
        last = Last()
        last.itself = last
        del last
        collect(2)
    end()


if __name__ == "__main__":
    main()
