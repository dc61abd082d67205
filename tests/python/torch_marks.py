"""Trains in the ways that differ in their marks of steps.

Prints what it called by the name of the mark's annotation, and what a library that watches it must
not change: {"marks": {name: calls}, "threads": calls of backward by other threads, "seen": ...}.
"""

import collections
import hashlib
import json
import sys
import threading
import warnings

import torch
from torch.utils.data import DataLoader, TensorDataset

marks = collections.Counter()
of_threads = 0
torch.manual_seed(3)


def model():
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def loss_of(net, count=4):
    return net(torch.randn(count, 16)).pow(2).mean()


def backward(loss, **options):
    marks["backward"] += 1
    loss.backward(**options)


def step(optimizer, marking=True):
    marks[f"Optimizer.step#{type(optimizer).__name__}.step"] += marking
    optimizer.step()
    optimizer.zero_grad()


class Nested(torch.autograd.Function):
    """Computes another backward pass inside its own, as checkpointing does."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (inner * inner).sum().backward()
        return gradient * inner.grad


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient")


def accumulating(kind):
    """Two backward passes a step."""
    net = model()
    optimizer = kind(net.parameters(), lr=0.01)
    for _ in range(12):
        for _ in range(2):
            backward(loss_of(net))
        step(optimizer)


def adversarial():
    """The discriminator steps five times for each step of the generator, which steps first."""
    generator, discriminator = model(), model()
    first = torch.optim.RMSprop(generator.parameters())
    other = torch.optim.Adagrad(discriminator.parameters())
    for _ in range(10):
        backward(loss_of(generator))
        step(first)
        for _ in range(5):
            backward(loss_of(discriminator))
            step(other, marking=False)


def unusual():
    """Nested passes are part of the outer one; failing ones and those of torch.autograd count."""
    net = model()
    for _ in range(5):
        backward(Nested.apply(loss_of(net)))
        marks["backward"] += 1
        torch.autograd.grad(loss_of(net), list(net.parameters()))
        backward(loss_of(net), create_graph=True)
        try:
            backward(Fails.apply(loss_of(net)))
        except ValueError:
            pass


def in_a_thread():
    global of_threads
    for _ in range(7):
        backward(loss_of(model()))
        of_threads += 1


def loading(workers):
    loader = DataLoader(TensorDataset(torch.randn(24, 16)), batch_size=8, num_workers=workers)
    name = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    batches = iter(loader)
    while True:
        marks[f"enumerate(DataLoader)#{name}.__next__"] += 1
        if next(batches, None) is None:
            return


def compiled():
    """Torch's compiler looks into the hooks behind the step that it compiles."""
    from torch._dynamo.testing import CompileCounter

    net, counter = model(), CompileCounter()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    compiled_step = torch.compile(optimizer.step, backend=counter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            backward(loss_of(net))
            compiled_step()
    return [counter.frame_count, counter.op_count, [str(one.message) for one in caught]]


scenario = sys.argv[1]
graphs = None
if scenario == "sgd":
    accumulating(torch.optim.SGD)
elif scenario == "adam":
    accumulating(torch.optim.AdamW)
elif scenario == "adversarial":
    adversarial()
elif scenario == "unusual":
    unusual()
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    in_a_thread()
    of_threads //= 2
elif scenario == "compiled":
    graphs = compiled()
elif scenario == "loading":
    loading(0)
    loading(2)
# The threads that feed DataLoader's workers end a while after its iterator.
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(10)
seen = {
    "graphs": graphs,
    "random": torch.randn(1).item(),
    "modules": hashlib.sha256(" ".join(sorted(sys.modules)).encode()).hexdigest(),
    "meta_path": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
    "settings": [sys.gettrace(), sys.getprofile(), len(threading.enumerate())],
}
print(json.dumps({"marks": marks, "threads": of_threads, "seen": seen}))
