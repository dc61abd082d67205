"""Calls of empty_cache() of a PyTorch that is made up here: real builtins of a module `torch._C`, over an allocator
that only counts. The lines of the calls are marked `# useless`, `# undone` and `# lasts`."""
import ctypes
import gc
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


allocated, reserved, calls = 100 * MIB, 100 * MIB, 0


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
    return {name: {"all": {"current": size}} for name, size in [("allocated_bytes", allocated), ("reserved_bytes", reserved)]}


torch, native = types.ModuleType("torch"), types.ModuleType("torch._C")
native._cuda_emptyCache = builtin("_cuda_emptyCache", empty, NOARGS)
native._cuda_memoryStats = builtin("_cuda_memoryStats", stats, ONE)
native._cuda_getDeviceCount = builtin("_cuda_getDeviceCount", lambda *_: 1, NOARGS)
sys.modules["torch"], sys.modules["torch._C"] = torch, native
torch._C = native
first = native._cuda_emptyCache
gc.collect()


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


for request in range(20):
    after_each_request()
for size in 8000, 2000, 500, 120:
    after_a_model(size)
# What a program can see: the builtin is the same object, and does what it did.
print(first is native._cuda_emptyCache, first.__name__, first.__self__, calls)
