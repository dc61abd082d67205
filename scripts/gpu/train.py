#!/usr/bin/env python3
"""Trains a small transformer and records when each step started and ended.

    python train.py --out steps.json [--steps 100] [--heap 1000000] [--arms on,off] ...

The workload of run.py: deterministic, so that two runs launch the same kernels. Times are
time.monotonic_ns(). With two --arms the steps are in blocks that alternate in the order a b b a,
each between two synchronizations and two full collections, which count for neither arm: the
difference between the arms' blocks is the effect of the second setting. `OUT.begun` exists once the
measured steps start.
"""

import argparse
import gc
import json
import os
import pathlib
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONTEXT, VOCABULARY = 64, 256


class Tokens(Dataset):
    """Random tokens, the same for every run."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, item):
        tokens = torch.randint(VOCABULARY, (CONTEXT + 1,), generator=torch.Generator().manual_seed(item))
        return tokens[:-1], tokens[1:]


class Model(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


# How an arm sets the collector at the start of its block, after a full collection.
ARMS = {
    "on": gc.enable,
    "off": gc.disable,
    "freeze": lambda: (gc.freeze(), gc.enable()),
    "thresholds": lambda: (gc.set_threshold(7_000, 10, 10), gc.enable()),
}


def reset_collector(thresholds):
    """Restores the same state at the start of each block."""
    gc.disable()
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.collect()


class Collections:
    """Records gc.callbacks and torch's allocator for each collection."""

    def __init__(self, device):
        self.device = device
        self.found = []
        gc.callbacks.append(self)

    def allocated(self):
        return torch.cuda.memory_allocated() if self.device == "cuda" else 0

    def __call__(self, phase, info):
        if phase == "start":
            self.started = time.monotonic_ns(), self.allocated()
        else:
            start_ns, before = self.started
            freed = before - self.allocated()
            self.found.append([start_ns, time.monotonic_ns(), info["generation"], info["collected"], freed])


class Garbage:
    """Objects of a training step: some live for a while, some die in cycles, with device memory."""

    def __init__(self, options):
        self.options = options
        self.heap = [[number] for number in range(options.heap)]
        self.recent = []

    def step(self):
        self.recent.append([[number] for number in range(self.options.kept)])
        del self.recent[:-200]
        for _ in range(self.options.cycles):
            cycle = [torch.empty(1 << 18, device=self.options.device)]
            cycle.append(cycle)


def batches(options):
    loader = DataLoader(Tokens(options.batch * 10_000), options.batch, num_workers=options.workers)
    return iter(loader)


class Training:
    def __init__(self, options):
        torch.manual_seed(0)
        self.options = options
        self.model = Model(options.layers, options.width).to(options.device)
        if options.compile:
            self.model = torch.compile(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loss = nn.CrossEntropyLoss()
        self.batches = batches(options)
        self.side = torch.cuda.Stream() if options.streams else None
        self.graph = None
        self.last = None

    def compute(self, tokens, targets):
        self.optimizer.zero_grad(set_to_none=not self.options.graphs)
        loss = self.loss(self.model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self):
        """The step as a CUDA graph, as in torch's documentation: warm up on a side stream, then
        capture."""
        self.inputs = [part.to(self.options.device) for part in next(self.batches)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.compute(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.last = self.compute(*self.inputs)

    def step(self):
        parts = next(self.batches)
        if self.graph is not None:
            for target, part in zip(self.inputs, parts):
                target.copy_(part, non_blocking=True)
            self.graph.replay()
        elif self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                parts = [part.to(self.options.device, non_blocking=True) for part in parts]
            torch.cuda.current_stream().wait_stream(self.side)
            self.last = self.compute(*parts)
        else:
            parts = [part.to(self.options.device, non_blocking=True) for part in parts]
            self.last = self.compute(*parts)
        if self.options.item:
            self.last.item()


def synchronize(options):
    if options.device == "cuda":
        torch.cuda.synchronize()


def block(training, garbage, options, steps):
    """Runs steps between two synchronizations; returns (start, end) of the block and of each
    step."""
    synchronize(options)
    start_ns = time.monotonic_ns()
    times = []
    for _ in range(steps):
        step_ns = time.monotonic_ns()
        training.step()
        garbage.step()
        times.append([step_ns, time.monotonic_ns()])
    synchronize(options)
    return {"start_ns": start_ns, "end_ns": time.monotonic_ns(), "steps": times}


def train(options):
    thresholds = gc.get_threshold()
    garbage, training = Garbage(options), Training(options)
    if options.graphs:
        training.capture()
    block(training, garbage, options, options.warmup)
    pathlib.Path(f"{options.out}.begun").touch()
    collections = Collections(options.device)
    arms, blocks = options.arms.split(","), []
    turns = (arms + arms[::-1]) if len(arms) > 1 else arms
    # In torch.profiler's trace the measured steps are those below this annotation.
    with torch.profiler.record_function("measured"):
        while sum(len(done["steps"]) for done in blocks) < options.steps:
            arm = turns[len(blocks) % len(turns)]
            reset_collector(thresholds)
            ARMS[arm]()
            blocks.append(block(training, garbage, options, options.block or options.steps) | {"arm": arm})
    reset_collector(thresholds)
    return {
        "pid": os.getpid(),
        "blocks": blocks,
        "collections": collections.found,
        "loss": training.last.item(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": f"GPU-{torch.cuda.get_device_properties(0).uuid}" if options.device == "cuda" else None,
    }


def profiled(options):
    """The same under torch.profiler, with its trace kept. Its first use does extra work."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if options.device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities):
        torch.ones(2, device=options.device).sum().item()
    with torch.profiler.profile(activities=activities) as profiler:
        result = train(options)
    profiler.export_chrome_trace(options.profile)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--heap", type=int, default=0, help="objects that live for the whole run")
    parser.add_argument("--kept", type=int, default=0, help="objects of each step that live for 200 steps")
    parser.add_argument("--cycles", type=int, default=0, help="tensors of 1 MiB in cycles, per step")
    parser.add_argument("--item", action="store_true", help="loss.item() in every step")
    parser.add_argument("--arms", default="on", help="one or two of " + ", ".join(ARMS))
    parser.add_argument("--block", type=int, help="steps of a block (default: one block)")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--streams", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", help="run under torch.profiler and write its trace here")
    options = parser.parse_args()
    result = profiled(options) if options.profile else train(options)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
