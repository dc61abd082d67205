"""Forks in the middle of collections: os.fork() inside a gc callback.

    fork_in_callback.py FOLDER

FOLDER/PID.json is the truth of each process. Four forks: in the callback of the start and of the
stop, with a child that ends there (by os._exit) and one that returns from the callback, finishes
the collection that its parent started (`inherited` in its truth) and collects three more times.
From 3.13 the callbacks run inside the collector's function, so a child forked at the start is
created during a pause.
"""

import gc
import os
import sys

from recorder import Recorder
from recorder import collect
from recorder import garbage
from recorder import hold_automatic


class Forker:
    """A gc callback that forks when armed."""

    def __init__(self, folder, recorder):
        self.folder = folder
        self.recorder = recorder
        self.armed = None
        self.children = []
        self.child = False

    def callback(self, phase, info):
        if self.armed is None or self.armed[0] != phase:
            return
        ends_here = self.armed[1]
        self.armed = None
        pid = os.fork()
        if pid:
            self.children.append(pid)
            return
        self.recorder.after_fork()
        self.child = True
        if ends_here:
            self.finish(exit="_exit in the callback", phase=phase)
            os._exit(0)

    def finish(self, **extra):
        self.recorder.finish(os.path.join(self.folder, "%d.json" % os.getpid()), **extra)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    hold_automatic()
    recorder = Recorder().install()
    forker = Forker(folder, recorder)
    gc.callbacks.append(forker.callback)
    for phase in ("start", "stop"):
        for ends_here in (True, False):
            garbage(100)
            forker.armed = (phase, ends_here)
            collect(2)
            if forker.child:
                for generation in range(3):
                    garbage(10)
                    collect(generation)
                forker.finish(exit="_exit after three more", phase=phase)
                os._exit(0)
    failed = [os.waitpid(pid, 0)[1] for pid in forker.children]
    forker.finish(exit="normal", children=forker.children)
    sys.exit(1 if any(failed) else 0)


if __name__ == "__main__":
    main()
