"""A kernel of 3 ms on the simulated GPU, for scripts that launch it by ctypes."""

import ctypes
import os


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def load(libraries):
    """CUDA's runtime, and the arguments with which its cudaLaunchKernel launches the kernel."""
    driver = ctypes.CDLL(os.path.join(libraries, "libcuda.so.1"))
    runtime = ctypes.CDLL(os.path.join(libraries, "libcudart.so.12"))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    runtime.cudaLaunchKernel.argtypes = [pointer, Dim3, Dim3, pointer, size, pointer]
    driver.simgpuKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64, pointer]
    assert runtime.cudaSetDevice(0) == 0
    kernel, one = pointer(), Dim3(1, 1, 1)
    assert driver.simgpuKernel(b"gemm", 3_000_000, ctypes.byref(kernel)) == 0
    return runtime, (kernel, one, one, None, 0, None)
