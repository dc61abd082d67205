"""Calls the fake CUDA of fake_cuda.c. Arguments: folder of its libraries, action, number of
calls."""

import ctypes
import gc
import os
import sys
import threading
import time

folder, what, times = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
    ]


class Library:
    """Functions with their arguments: stack slots and halves of registers matter here."""

    def __init__(self):
        mode = ctypes.RTLD_GLOBAL
        self.driver = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"), mode)
        self.runtime = ctypes.CDLL(os.path.join(folder, "libcudart.so.12"), mode)
        self.nccl = ctypes.CDLL(os.path.join(folder, "libnccl.so.2"), mode)
        u, p, n = ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
        self.driver.cuLaunchKernel.argtypes = [p] + [u] * 7 + [p, p, p]
        self.driver.cuGraphLaunch.argtypes = [p, p]
        self.driver.cuStreamSynchronize.argtypes = [p]
        self.driver.cuMemcpyAsync.argtypes = [p, p, n, p]
        self.driver.cuMemsetD32Async.argtypes = [p, u, n, p]
        self.driver.cuMemAlloc_v2.argtypes = [p, n]
        self.driver.cuMemFree_v2.argtypes = [p]
        self.runtime.cudaLaunchKernel.argtypes = [p, Dim3, Dim3, p, n, p]
        self.runtime.cudaGraphLaunch.argtypes = [p, p]
        self.runtime.cudaStreamSynchronize.argtypes = [p]
        self.runtime.cudaMemcpyAsync.argtypes = [p, p, n, ctypes.c_int, p]
        self.runtime.cudaMemcpy2DAsync.argtypes = [p, n, p, n, n, n, ctypes.c_int, p]
        self.runtime.cudaMalloc.argtypes = [p, n]
        self.runtime.cudaFree.argtypes = [p]
        self.nccl.ncclAllReduce.argtypes = [p, p, n, ctypes.c_int, ctypes.c_int, p, p]


def everything(library, thread):
    """Each function, in both layers, with arguments that distinguish the calls."""
    driver, runtime, pointer = library.driver, library.runtime, ctypes.c_void_p()
    stream = 0x7F0000001000 + (thread << 8)
    config = Config(stream=stream)
    for i in range(times):
        config.grid[0] = i + 7
        driver.cuLaunchKernel(None, i + 1, 2, 3, 4, 5, 6, 0, stream, None, None)
        driver.cuLaunchKernelEx(ctypes.byref(config), None, None, None)
        driver.cuGraphLaunch(None, stream + 1)
        runtime.cudaLaunchKernel(None, Dim3(i + 1, 2, 3), Dim3(4, 5, 6), None, 0, stream + 2)
        runtime.cudaGraphLaunch(None, stream + 3)
        driver.cuLaunchKernel(None, i + 9, 2, 3, 4, 5, 6, 0, stream + 4, None, None)
        driver.cuStreamSynchronize(stream)
        runtime.cudaStreamSynchronize(stream + 2)
        driver.cuMemcpyAsync(None, None, i + 11, stream)
        driver.cuMemsetD32Async(None, 1, i + 12, stream)
        runtime.cudaMemcpyAsync(None, None, i + 13, 1, stream)
        runtime.cudaMemcpy2DAsync(None, 1, None, 1, i + 1, 14, 1, stream)
        driver.cuMemAlloc_v2(ctypes.byref(pointer), i + 15)
        driver.cuMemFree_v2(pointer)
        runtime.cudaMalloc(ctypes.byref(pointer), i + 16)
        runtime.cudaFree(pointer)
        library.nccl.ncclAllReduce(None, None, i + 17, 6, 0, None, stream + 5)
        if i % 50 == 0:
            gc.collect()


def flood(library, seconds, rate):
    """Launches at a rate, as evenly as Python can."""
    launch, start, done = library.driver.cuLaunchKernel, time.monotonic(), 0
    while (passed := time.monotonic() - start) < seconds:
        while done < passed * rate:
            launch(None, 1, 1, 1, 1, 1, 1, 0, 0, None, None)
            done += 1


def work():
    library = Library()
    threads = [threading.Thread(target=everything, args=(library, n)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return library


if what == "everything":
    work()
elif what == "fork":
    work()
    if (child := os.fork()) == 0:
        everything(Library(), 9)
        # The log is written by a destructor.
        sys.exit(0)
    os.waitpid(child, 0)
elif what == "exec":
    work()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, sys.argv[0], folder, "everything", sys.argv[3]])
elif what == "wait":
    # Calls start once the file named last exists: gctrace is attached.
    library = Library()
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.01)
    everything(library, 0)
elif what == "late":
    time.sleep(1)
    everything(Library(), 0)
elif what == "flood":
    flood(Library(), times, int(sys.argv[4]))
