#!/usr/bin/env python3
"""Trains a network of imaginary size on a GPU, through libcudart by ctypes.

Every layer of every step launches kernels; the automatic differentiation keeps its graph in objects
that refer to each other, so only the garbage collector frees a step's tensors and with them their
GPU memory. The host runs ahead of the GPU and synchronizes every few steps. Written for the
simulated GPU, where each kernel has a given duration:

    python examples/train_simgpu.py --library DIR [--steps 100] [--kernel-us 60] [--sync-every 4]
"""

import argparse
import ctypes
import os
import random
import subprocess
import sys
import time
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

TO_DEVICE, TO_HOST = 1, 2
NON_BLOCKING = 1
FLOAT, SUM = 7, 0


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def load(folder, name):
    return ctypes.CDLL(os.path.join(folder, name) if folder else name)


class Cuda:
    """The runtime calls that training needs, with errors as exceptions."""

    def __init__(self, folder):
        self.driver = load(folder, "libcuda.so.1")
        self.runtime = load(folder, "libcudart.so.12")
        self.runtime.cudaLaunchKernel.argtypes = [
            c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p]
        self.runtime.cudaMemcpyAsync.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_void_p]
        for name in ("cudaFree", "cudaStreamSynchronize"):
            getattr(self.runtime, name).argtypes = [c_void_p]
        for name in ("cudaEventRecord", "cudaMalloc"):
            getattr(self.runtime, name).argtypes = [c_void_p, c_void_p]
        self.runtime.cudaStreamWaitEvent.argtypes = [c_void_p, c_void_p, c_uint]
        self.driver.simgpuKernel.argtypes = [c_char_p, c_uint64, c_void_p]

    def __call__(self, name, *arguments):
        result = getattr(self.runtime, name)(*arguments)
        if result != 0:
            raise MemoryError(name) if result == 2 else RuntimeError(f"{name} failed: {result}")

    def handle(self, name, *arguments):
        out = c_void_p()
        self(name, byref(out), *arguments)
        return out.value

    def kernel(self, name, microseconds):
        out = c_void_p()
        if self.driver.simgpuKernel(name.encode(), int(microseconds * 1000), byref(out)):
            raise RuntimeError("this libcuda.so.1 is not the simulated GPU")
        return out.value


class Device:
    """One GPU: its streams, its kernels, and memory kept for reuse."""

    def __init__(self, cuda, number, streams, kernel_us):
        self.cuda, self.number = cuda, number
        cuda("cudaSetDevice", number)
        self.streams = [cuda.handle("cudaStreamCreateWithFlags", NON_BLOCKING)
                        for _ in range(streams)]
        self.events = [cuda.handle("cudaEventCreate") for _ in self.streams]
        self.kernels = {name: cuda.kernel(f"{name}_kernel", kernel_us * factor) for name, factor
                        in (("gemm", 1.0), ("relu", 0.25), ("gemm_backward", 2.0),
                            ("relu_backward", 0.25), ("loss", 0.25), ("sgd", 0.5))}
        self.grid, self.block = Dim3(64, 1, 1), Dim3(256, 1, 1)
        self.free = {}

    def launch(self, kernel, stream=0):
        self.cuda("cudaLaunchKernel", self.kernels[kernel], self.grid, self.block, None, 0,
                  self.streams[stream])

    def allocate(self, size):
        blocks = self.free.get(size)
        return blocks.pop() if blocks else self.cuda.handle("cudaMalloc", size)

    def release(self, address, size):
        self.free.setdefault(size, []).append(address)

    def join(self, stream, other):
        """Makes later work of `stream` wait for the work now in `other`."""
        self.cuda("cudaEventRecord", self.events[other], self.streams[other])
        self.cuda("cudaStreamWaitEvent", self.streams[stream], self.events[other], 0)


class Tensor:
    """GPU memory that remembers how it was computed, so that gradients can flow back."""

    def __init__(self, device, size, parents=(), backward=None):
        self.device, self.size = device, size
        self.address = device.allocate(size)
        self.parents = parents
        self.children = []
        self.backward_kernel = backward
        for parent in parents:
            parent.children.append(self)  # the cycle: parents and children refer to each other

    def __del__(self):
        self.device.release(self.address, self.size)

    def backward(self):
        order, stack = [], [self]
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(node.parents)
        for node in order:
            if node.backward_kernel is not None:
                node.device.launch(node.backward_kernel)


class Network:
    def __init__(self, device, layers, size):
        self.device, self.layers, self.size = device, layers, size

    def __call__(self, inputs):
        for _ in range(self.layers):
            self.device.launch("gemm")
            hidden = Tensor(self.device, self.size, (inputs,), "gemm_backward")
            self.device.launch("relu")
            inputs = Tensor(self.device, self.size, (hidden,), "relu_backward")
        return inputs


class Sample:
    """One training example with its neighbors: a small web of objects that stays."""

    def __init__(self, rng, source=None):
        self.values = [rng.random() for _ in range(4)]
        self.tags = {"augmented": source is not None}
        self.source = source
        self.neighbors = [self]


class Dataset:
    """The examples seen so far; every step adds augmented copies, as a cache does."""

    def __init__(self, rng, count, copies):
        self.rng, self.copies = rng, copies
        self.samples = [Sample(rng) for _ in range(count)]

    def batch(self):
        source = self.rng.choice(self.samples)
        self.samples.extend(Sample(self.rng, source) for _ in range(self.copies))
        return source


class Ranks:
    """Gradients summed over the processes of a job, on a separate stream."""

    def __init__(self, cuda, folder, device):
        self.device = device
        self.stream = len(device.streams)
        device.streams.append(cuda.handle("cudaStreamCreateWithFlags", NON_BLOCKING))
        device.events.append(cuda.handle("cudaEventCreate"))
        self.nccl = load(folder, "libnccl.so.2")
        self.nccl.ncclAllReduce.argtypes = [
            c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]
        self.nccl.ncclCommDestroy.argtypes = [c_void_p]
        identity = UniqueId(bytes.fromhex(os.environ["TRAIN_NCCL_ID"]))
        self.communicator = c_void_p()
        if self.nccl.ncclCommInitRank(byref(self.communicator), int(os.environ["WORLD_SIZE"]),
                                      identity, int(os.environ["RANK"])):
            raise RuntimeError("the other ranks did not join")

    def all_reduce(self, address, size):
        self.device.join(self.stream, 0)
        self.nccl.ncclAllReduce(address, address, size // 4, FLOAT, SUM, self.communicator,
                                self.device.streams[self.stream])
        self.device.join(0, self.stream)

    def close(self):
        self.nccl.ncclCommDestroy(self.communicator)


def train_step(device, network, dataset, ranks, options, step):
    dataset.batch()
    inputs = Tensor(device, options.tensor_bytes)
    copies = step % len(device.streams[:options.streams])
    device.cuda("cudaMemcpyAsync", inputs.address, None, options.tensor_bytes, TO_DEVICE,
                device.streams[copies])
    if copies != 0:
        device.join(0, copies)
    output = network(inputs)
    device.launch("loss")
    output.backward()
    if ranks is not None:
        ranks.all_reduce(output.address, options.tensor_bytes)
    for _ in range(options.layers):
        device.launch("sgd")


def train(options):
    rank = int(os.environ.get("RANK", "0"))
    cuda = Cuda(options.library)
    count = c_int()
    cuda("cudaGetDeviceCount", byref(count))
    numbers = [rank % count.value] if options.ranks > 1 else range(options.devices)
    devices = [Device(cuda, number, options.streams, options.kernel_us) for number in numbers]
    networks = [Network(device, options.layers, options.tensor_bytes) for device in devices]
    ranks = Ranks(cuda, options.library, devices[0]) if options.ranks > 1 else None
    dataset = Dataset(random.Random(options.seed + rank), options.samples, options.copies)
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        for device, network in zip(devices, networks):
            cuda("cudaSetDevice", device.number)
            train_step(device, network, dataset, ranks, options, step)
            if step % options.sync_every == 0 or step == options.steps:
                cuda("cudaStreamSynchronize", device.streams[0])
    seconds = time.perf_counter() - started
    print(f"rank {rank}: {options.steps} steps in {seconds:.2f} s, "
          f"{options.steps / seconds:.1f} steps/s, {len(dataset.samples)} samples", flush=True)
    if ranks is not None:
        ranks.close()


def start_ranks(options):
    """Runs this program once per rank; returns the exit status."""
    identity = UniqueId()
    load(options.library, "libnccl.so.2").ncclGetUniqueId(byref(identity))
    count = str(options.ranks)
    job = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "TRAIN_NCCL_ID": bytes(identity).hex()}
    processes = [
        subprocess.Popen([sys.executable, *sys.argv],
                         env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(options.ranks)]
    return max(process.wait() for process in processes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="folder of libcuda.so.1 (default: as the loader finds it)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--kernel-us", type=float, default=60.0, help="duration of a large kernel")
    parser.add_argument("--sync-every", type=int, default=4, help="steps that the host runs ahead")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1, help="devices of one process, in turn")
    parser.add_argument("--ranks", type=int, default=1, help="processes, one device each")
    parser.add_argument("--tensor-bytes", type=int, default=1 << 20)
    parser.add_argument("--samples", type=int, default=50_000, help="examples at the start")
    parser.add_argument("--copies", type=int, default=400, help="examples added per step")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("SIMGPU_DEVICES", str(max(options.devices, options.ranks)))
    if options.ranks > 1 and "RANK" not in os.environ:
        return start_ranks(options)
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
