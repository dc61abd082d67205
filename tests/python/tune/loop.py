"""A step that makes cycles, and containers that live through it, for tune_truth.py.

A low threshold collects while the containers live, and traverses them in vain.
"""

import sys


class Node:
    def __init__(self, parent):
        self.parent = parent
        self.children = []


def train_step():
    living = [[number] for number in range(1_000)]
    for _ in range(500):
        first = Node(None)
        first.children.append(Node(first))
    return sum(map(len, living))


def main():
    live = [{"number": number, "list": [number]} for number in range(2_000)]
    for _ in range(int(sys.argv[sys.argv.index("--steps") + 1])):
        train_step()
    return live


if __name__ == "__main__":
    main()
