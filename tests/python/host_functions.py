"""A stream that has the host run a function after each of its kernels, and waits for that.

    host_functions.py LIBRARIES

The function sleeps for 4 ms and needs no GIL. The simulated GPU's log (SIMGPU_LOG) has the times.
"""

import ctypes
import sys

import simgpu_kernel

STEPS = 60
libraries, = sys.argv[1:]
runtime, gemm = simgpu_kernel.load(libraries)
sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)


def launch():
    assert runtime.cudaLaunchKernel(*gemm) == 0


def run_on_host():
    assert runtime.cudaLaunchHostFunc(None, sleep, ctypes.c_void_p(4000)) == 0


for step in range(STEPS):
    launch()
    run_on_host()
    launch()
    if step % 10 == 9:
        assert runtime.cudaDeviceSynchronize() == 0
