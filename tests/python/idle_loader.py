"""A GPU that idles while training waits for a DataLoader; writes the time of the waits, in ns, to a file.

    idle_loader.py LIBRARIES TRUTH.json

A kernel of 3 ms, of which the host waits for the end; then 6 ms for the next batch, and 2 ms of Python in `log`.
Two epochs: at the end of each the iterator raises. The DataLoader has PyTorch's names, not its code.
"""

import gc
import json
import sys
import time
import types

import simgpu_kernel

EPOCHS, STEPS = 2, 60
LOADER = """
import time

class _BaseDataLoaderIter:
    def __init__(self, steps):
        self.left, self.waited_ns, self.asked = steps, 0, 0

    def __next__(self):
        start = time.monotonic_ns()
        self.asked += 1
        if not self.left:
            raise StopIteration
        self.left -= 1
        time.sleep(0.006)
        self.waited_ns += time.monotonic_ns() - start
        return self.left

    def __iter__(self):
        return self

class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    pass
"""
loader = types.ModuleType("torch.utils.data.dataloader")
exec(LOADER, loader.__dict__)
sys.modules[loader.__name__] = loader
# What was imported is looked at in collections.
gc.collect()

libraries, truth = sys.argv[1:3]
runtime, gemm = simgpu_kernel.load(libraries)


def log():
    time.sleep(0.002)


iterators = []
for _ in range(EPOCHS):
    iterators.append(loader._MultiProcessingDataLoaderIter(STEPS))
    for _ in iterators[-1]:
        runtime.cudaLaunchKernel(*gemm)
        runtime.cudaDeviceSynchronize()
        log()
with open(truth, "w") as file:
    waited = sum(iterator.waited_ns for iterator in iterators)
    json.dump({"waited": waited, "asked": sum(iterator.asked for iterator in iterators)}, file)
