"""Work for the collector, the same every time: work.py [forever|kill|exit|N...]"""

import gc
import os
import signal
import sys
import time


class Node:
    def __init__(self):
        self.itself = self


def work(count=30_000):
    kept = []
    for index in range(count):
        Node()
        kept.append([index])
    gc.collect()
    return len(kept)


if __name__ == "__main__":
    print("made", work(), "lists", sys.argv[1:] if len(sys.argv) > 1 and not sys.argv[1].isdigit() else "", flush=True)
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "forever":
        while True:
            time.sleep(1)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(7)
