"""Trains a small model, with torch.distributed if a launcher has set a rank, and builds and drops a
graph of objects in each step."""

import os

import torch
from torch import distributed
from torch import nn


def main():
    torch.set_num_threads(1)
    model = nn.Linear(16, 16)
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = [[] for _ in range(100_000)]
    for _ in range(16):
        graph = [[one] for one in kept[:30_000]]
        graph.append([[one] for one in graph])
        optimizer.zero_grad()
        model(torch.ones(4, 16)).sum().backward()
        optimizer.step()
    if distributed.is_initialized():
        distributed.destroy_process_group()
    print("16 steps")


main()
