"""A training whose tensors sit in cycles: a closure that names itself keeps each step's batch, and a
hook bound to its own module keeps an activation.

Prints {"steps": ..., "tensors": tensors in the garbage of one step as DEBUG_SAVEALL finds it,
"closures": functions in it, "total": tensors freed by collections in all, "collected": what
gc.get_stats() says that collections freed, since the first step}.
"""

import collections
import gc
import json
import sys

import torch

STEPS = int(sys.argv[1])
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step():
    batch = torch.randn(8, 16)

    def loss(again=0):
        # Refers to itself and to the batch: only the collector frees them.
        return loss(again - 1) if again else model(batch).sum()

    class Recorder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = None

        def keep(self, module, inputs, output):
            self.seen = output.detach()

    recorder = Recorder.__new__(Recorder)
    torch.nn.Module.__init__(recorder)
    recorder.seen = None
    recorder.register_forward_hook(recorder.keep)
    recorder.forward = lambda x: x * 2
    recorder(batch)
    optimizer.zero_grad()
    loss(1).backward()
    optimizer.step()


step()
gc.collect()
gc.disable()
gc.set_debug(gc.DEBUG_SAVEALL)
step()
gc.collect()
gc.set_debug(0)
kinds = collections.Counter(type(object).__name__ for object in gc.garbage)
tensors, closures = kinds["Tensor"], kinds["function"]
gc.garbage.clear()
gc.collect()


def collected():
    return sum(generation["collected"] for generation in gc.get_stats())


before = collected()
for _ in range(STEPS):
    step()
    gc.collect()
print(
    json.dumps(
        {
            "steps": STEPS,
            "tensors": tensors,
            "closures": closures,
            "total": tensors * STEPS,
            "collected": collected() - before,
        }
    )
)
