#!/usr/bin/env python3
"""Launches empty kernels through the driver alone and prints {"launches": n, "ns": time, "start_ns", "end_ns"}.

    launch_rate.py LIBRARY COUNT EVERY_NS

LIBRARY is launches.c, built. On the simulated GPU the kernel is the simulator's, on a real one an
empty PTX kernel.
"""

import ctypes
import json
import sys
import time
from ctypes import byref, c_int, c_int64, c_uint64, c_void_p

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry empty() { ret; }
"""


def check(result, what):
    if result:
        sys.exit(f"{what} returned {result}")


def kernel(driver):
    if hasattr(driver, "simgpuKernel"):
        function = c_void_p()
        check(driver.simgpuKernel(b"empty", c_uint64(1000), byref(function)), "simgpuKernel")
        return function
    module, function = c_void_p(), c_void_p()
    check(driver.cuModuleLoadData(byref(module), PTX), "cuModuleLoadData")
    check(driver.cuModuleGetFunction(byref(function), module, b"empty"), "cuModuleGetFunction")
    return function


def main():
    library, count, every_ns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, stream = c_int(), c_void_p(), c_void_p()
    check(driver.cuInit(0), "cuInit")
    check(driver.cuDeviceGet(byref(device), 0), "cuDeviceGet")
    check(driver.cuDevicePrimaryCtxRetain(byref(context), device), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(driver.cuStreamCreate(byref(stream), 1), "cuStreamCreate")
    launch_many = ctypes.CDLL(library).launch_many
    launch_many.restype = c_int64
    arguments = ctypes.cast(driver.cuLaunchKernel, c_void_p), kernel(driver), stream
    launch_many(*arguments, c_int64(1000), c_int64(0))
    check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
    start_ns = time.monotonic_ns()
    ns = launch_many(*arguments, c_int64(count), c_int64(every_ns))
    check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
    check(ns < 0, "a launch")
    print(json.dumps({"launches": count, "ns": ns, "start_ns": start_ns, "end_ns": time.monotonic_ns()}))


if __name__ == "__main__":
    main()
