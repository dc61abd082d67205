"""A small network in PyTorch on the CPU whose steps make cycles, for tune_truth.py."""

import gc
import sys

import torch


class Node:
    def __init__(self):
        self.itself = self
        self.children = []


def train_step(model, optimizer, batch):
    living = [[number] for number in range(1_000)]
    nodes = [Node() for _ in range(500)]
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return len(nodes) + len(living)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(16, 32)
    for step in range(int(sys.argv[sys.argv.index("--steps") + 1])):
        train_step(model, optimizer, batch)
        if step == 5:
            # What the import and the first steps left takes most of a full collection's time.
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    main()
