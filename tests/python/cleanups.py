"""Three useless cleanups and one that frees what cycles hold, at lines marked `# useless` and `# cycles`."""
import gc
import time

base = [{"n": n} for n in range(200_000)]


class Node:
    def __init__(self, size):
        self.data = bytearray(size)
        self.me = self


def after_each_request():
    request = [bytes(1000) for _ in range(100)]
    del request
    gc.collect()  # useless


def by_habit():
    gc.collect()  # useless


def after_evaluation():
    small = Node(64)
    del small
    gc.collect()  # useless


def with_cycles():
    large = [Node(16 << 20) for _ in range(4)]
    del large
    gc.collect()  # cycles


for number in range(20):
    after_each_request()
    by_habit()
    after_evaluation()
    with_cycles()
    time.sleep(0.02)
