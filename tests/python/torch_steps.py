"""A few training steps, with some failing backward passes; device memory is reported through
torch's own function.

Prints the counts: {"backward": calls of backward() that reached the engine, "failed": of these,
"freed": bytes that finalizers freed during collections}.
"""

import ctypes
import gc
import json
import os
import sys
import threading

import torch

STEPS = int(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
told = {"backward": 0, "failed": 0, "freed": 0, "peak": 0}

# Called by the caching allocator of a GPU after each allocation and each free; without a GPU
# nothing calls it.
library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
report = library._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]
CUDA_1 = 1 << 8 | 1
allocated = 0


def use(count):
    global allocated
    allocated += count
    told["peak"] = max(told["peak"], allocated)
    report(None, count, allocated, 1 << 20, CUDA_1)


class Block:
    """GPU memory that only the collector frees."""

    def __init__(self, count):
        self.me, self.count = self, count
        use(count)

    def __del__(self):
        use(-self.count)
        told["freed"] += self.count


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient")


def step():
    model(torch.randn(8, 64)).sum().backward()
    told["backward"] += 1


def failing_step():
    try:
        Fails.apply(torch.ones(3, requires_grad=True)).sum().backward()
    except ValueError:
        told["backward"] += 1
        told["failed"] += 1


for i in range(STEPS):
    step()
    if i % 5 == 0:
        failing_step()
    Block(100 + i)
    if i % 10 == 0:
        gc.collect()
thread = threading.Thread(target=step)
thread.start()
thread.join()
failing_step()
gc.collect()
print(json.dumps(told))
