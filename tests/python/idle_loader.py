"""A GPU that idles while training waits for a DataLoader; writes the time of the waits, in ns, to a file.

    idle_loader.py LIBRARIES TRUTH.json

A kernel of 3 ms, of which the host waits for the end; then 6 ms for the next batch, and 2 ms of Python in `log`.
Two epochs: at the end of each the iterator raises. The DataLoader has PyTorch's names, not its code.
"""

import ctypes
import gc
import json
import os
import sys
import time
import types

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
driver = ctypes.CDLL(os.path.join(libraries, "libcuda.so.1"))
runtime = ctypes.CDLL(os.path.join(libraries, "libcudart.so.12"))


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


runtime.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
driver.simgpuKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p]
assert runtime.cudaSetDevice(0) == 0
kernel = ctypes.c_void_p()
assert driver.simgpuKernel(b"gemm", 3_000_000, ctypes.byref(kernel)) == 0
one = Dim3(1, 1, 1)


def log():
    time.sleep(0.002)


iterators = []
for _ in range(EPOCHS):
    iterators.append(loader._MultiProcessingDataLoaderIter(STEPS))
    for _ in iterators[-1]:
        runtime.cudaLaunchKernel(kernel, one, one, None, 0, None)
        runtime.cudaDeviceSynchronize()
        log()
with open(truth, "w") as file:
    waited = sum(iterator.waited_ns for iterator in iterators)
    json.dump({"waited": waited, "asked": sum(iterator.asked for iterator in iterators)}, file)
