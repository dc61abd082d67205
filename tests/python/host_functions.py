"""A stream that has the host run a function after each of its kernels, and waits for that.

    host_functions.py LIBRARIES

The function sleeps for 4 ms and needs no GIL. The simulated GPU's log (SIMGPU_LOG) has the times.
"""

import ctypes
import os
import sys

STEPS = 60
libraries, = sys.argv[1:]
driver = ctypes.CDLL(os.path.join(libraries, "libcuda.so.1"))
runtime = ctypes.CDLL(os.path.join(libraries, "libcudart.so.12"))
sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


runtime.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
driver.simgpuKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p]
assert runtime.cudaSetDevice(0) == 0
kernel = ctypes.c_void_p()
assert driver.simgpuKernel(b"gemm", 3_000_000, ctypes.byref(kernel)) == 0
one = Dim3(1, 1, 1)


def launch():
    assert runtime.cudaLaunchKernel(kernel, one, one, None, 0, None) == 0


def run_on_host():
    assert runtime.cudaLaunchHostFunc(None, sleep, ctypes.c_void_p(4000)) == 0


for step in range(STEPS):
    launch()
    run_on_host()
    launch()
    if step % 10 == 9:
        assert runtime.cudaDeviceSynchronize() == 0
