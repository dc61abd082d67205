"""Calls of empty_cache() of a PyTorch that is made up here: real builtins of a module `torch._C`, over an allocator
that only counts. The lines of the calls are marked `# useless`, `# undone` and `# lasts`, those of calls of
gc.collect() `# cycles` and `# nothing`."""
import ctypes
import gc
import os
import sys
import time
import types

MIB = 1 << 20
NOARGS, ONE = 4, 8


class Method(ctypes.Structure):
    """`struct PyMethodDef`."""
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


kept = []


def builtin(name, function, flags):
    """A builtin whose C function calls a Python one."""
    native = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(function)
    method = Method(name.encode(), ctypes.cast(native, ctypes.c_void_p), flags, None)
    kept.extend([native, method])
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(ctypes.addressof(method), None, None)


allocated, reserved, calls, asked = 100 * MIB, 100 * MIB, 0, 0


def allocate(size):
    global allocated, reserved
    allocated += size
    reserved = max(reserved, allocated)


def free(size):
    global allocated
    allocated -= size


def empty(*_):
    global reserved, calls
    time.sleep(0.002)
    reserved, calls = allocated, calls + 1


def stats(*_):
    global asked
    asked += 1
    return {name: {"all": {"current": size}} for name, size in [("allocated_bytes", allocated), ("reserved_bytes", reserved)]}


def device_count(*_):
    global asked
    asked += 1
    return 1


torch, native = types.ModuleType("torch"), types.ModuleType("torch._C")
native._cuda_emptyCache = builtin("_cuda_emptyCache", empty, NOARGS)
native._cuda_memoryStats = builtin("_cuda_memoryStats", stats, ONE)
parent = os.getpid()
native._cuda_getDeviceCount = builtin("_cuda_getDeviceCount", device_count, NOARGS)
native._cuda_isInBadFork = builtin("_cuda_isInBadFork", lambda *_: os.getpid() != parent, NOARGS)
torch.cuda = types.ModuleType("torch.cuda")
torch.cuda._initialized = False
sys.modules.update({"torch": torch, "torch._C": native, "torch.cuda": torch.cuda})
torch._C = native
first = native._cuda_emptyCache
# Before the program uses a GPU its allocator is not asked, nor is for the number of devices, which is a use.
gc.collect()
gc.collect()
unasked = asked == 0
torch.cuda._initialized = True


# As of a file of PyTorch: its line is not the program's.
wrapper = "def empty_cache():\n    torch._C._cuda_emptyCache()"
exec(compile(wrapper, "/usr/lib/python3/dist-packages/torch/cuda/memory.py", "exec"))


def by_habit():
    empty_cache()  # useless


def after_each_request():
    allocate(500 * MIB)
    free(500 * MIB)
    empty_cache()  # undone
    by_habit()
    time.sleep(0.004)
    allocate(400 * MIB)
    gc.collect(0)
    free(400 * MIB)


def after_a_model(size):
    allocate(size * MIB)
    free(size * MIB)
    torch._C._cuda_emptyCache()  # lasts


class Held:
    """Device memory that a cycle holds."""

    def __init__(self):
        self.me = self
        allocate(300 * MIB)

    def __del__(self):
        free(300 * MIB)


def after_an_error():
    Held()
    gc.collect()  # cycles


def to_be_sure():
    gc.collect()  # nothing


for request in range(20):
    after_each_request()
for size in 8000, 2000, 500, 120:
    after_a_model(size)
gc.disable()
for error in range(5):
    after_an_error()
    to_be_sure()
before = asked
if os.fork() == 0:
    # Another thread may have had a lock of the allocator.
    gc.collect()
    os._exit(asked != before)
unasked &= os.wait()[1] == 0
# What a program can see: the builtin is the same object, and does what it did.
print(unasked, asked > 0, first is native._cuda_emptyCache, first.__name__, first.__self__, calls)
