"""Allocates at a steady rate in one of several ways, and reports its number of rounds and CPU time.

usage: allocate.py KIND CPU_SECONDS [COUNTER | --report]

COUNTER: counting_allocator.c as a shared library. It counts the calls of the object allocator; the
program is slower meanwhile, so its rate is meaningless then.
--report: also reports about every fifth of a second.
"""

import json
import sys
import time


def integers(rounds):
    for number in range(1000, 1000 + rounds):
        value = number + 7
    return value


def growing(rounds, entries):
    for _ in range(rounds):
        kept = {}
        for number in range(entries):
            kept[number * 7] = [number]


DOCUMENT = [{"a": number, "b": [1.5, 2, 3], "c": "text%d" % number} for number in range(40)]
TEXT = json.dumps(DOCUMENT)


def training_step():
    """A step of a typical small model on the CPU."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters())
    features, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


KINDS = {
    "integers": lambda: lambda: integers(2_000_000),
    "growing": lambda: lambda: growing(750, 400),
    # Grows for tens of milliseconds, and is freed for as long: a program with two phases.
    "phases": lambda: lambda: growing(1, 300_000),
    "loads": lambda: lambda: json.loads(TEXT),
    "dumps": lambda: lambda: json.dumps(DOCUMENT),
    "torch": training_step,
}


def counter(library):
    """A function that returns how much was allocated since."""
    import ctypes

    counting = ctypes.PyDLL(library)
    counting.install()
    count = ctypes.c_ulonglong.in_dll(counting, "allocations")
    return lambda: count.value


def main():
    work, seconds = KINDS[sys.argv[1]](), float(sys.argv[2])
    work()
    report = sys.argv[3:] == ["--report"]
    allocated = counter(sys.argv[3]) if sys.argv[3:] and not report else lambda: None
    rounds, before, start = 0, allocated(), time.process_time()
    reported = start
    while time.process_time() - start < seconds:
        work()
        rounds += 1
        if report and time.process_time() - reported > 0.2:
            reported = time.process_time()
            print(rounds, reported, flush=True)
    report = {"rounds": rounds, "cpu_s": time.process_time() - start}
    if before is not None:
        report["allocations"] = allocated() - before
    print(json.dumps(report), flush=True)


main()
