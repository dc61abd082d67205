"""This machine: kernel, driver, CUPTI, and what a probe on CUDA functions would cost."""

import glob
import os
import pathlib
import platform
import struct
import subprocess
import sys

from bench import device

LIMIT_S = 40
FUNCTIONS = {
    "libcuda.so.1": ("cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyAsync", "cuStreamSynchronize", "cuGraphLaunch"),
    "libcudart.so": ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaStreamSynchronize"),
}
# First bytes of instructions that Linux emulates under a uprobe (arch/x86/kernel/uprobes.c): one
# trap. All others are single-stepped out of line: two.
EMULATED = {0x90: "nop", 0xE8: "call", 0xE9: "jmp", 0xEB: "jmp", **{0x50 + at: "push" for at in range(8)}}


def instruction(code):
    """The instruction at a function's first byte, and what a probe there costs."""
    if code.startswith(b"\xf3\x0f\x1e\xfa"):
        return f"endbr64, then {instruction(code[4:])}"
    first = code[1] if code[0] == 0x41 and 0x50 <= code[1] < 0x58 else code[0]
    name = EMULATED.get(first) or ("nop" if code.startswith(b"\x0f\x1f") else None)
    return f"{name}: one trap" if name else f"{code[:4].hex(' ')}: stepped"


def symbols(path):
    """Exported functions of a 64-bit ELF file: {name: offset in the file}."""
    data = pathlib.Path(path).read_bytes()
    sections_at, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + at * size) for at in range(count)]
    header_at, = struct.unpack_from("<Q", data, 0x20)
    segment_size, segments = struct.unpack_from("<HH", data, 0x36)
    loads = [struct.unpack_from("<IIQQQQQQ", data, header_at + at * segment_size) for at in range(segments)]
    found = {}
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        names_at = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            end = data.index(b"\0", names_at + name)
            for kind, _, offset, address, _, in_file, _, _ in loads:
                if kind == 1 and address <= value < address + in_file:
                    found[data[names_at + name:end].decode()] = value - address + offset
    return data, found


def mapped(prefix):
    """The file of a loaded library."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if os.path.basename(path).startswith(prefix):
            return path
    return None


def first_line(*command):
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()
    except OSError as error:
        return str(error)
    return lines[0] if lines else "no output"


def cupti_version():
    """In its own process: without a driver CUPTI crashes when queried."""
    path = mapped("libcupti.so")
    if path is None:
        return "not loaded"
    ask = ("import ctypes, sys; version = ctypes.c_uint32(); library = ctypes.CDLL(sys.argv[1]); "
           "print(library.cuptiGetVersion(ctypes.byref(version)), version.value)")
    return f"{first_line(sys.executable, '-c', ask, path)} ({path})"


def run(bench):
    import torch

    if device() == "cuda":
        torch.ones(1, device="cuda").item()
    exists = lambda path: "yes" if os.path.exists(path) else "no"
    rows = [
        ["kernel", platform.release(), ""],
        ["BTF", exists("/sys/kernel/btf/vmlinux"), ""],
        ["hardware PMU", exists("/sys/bus/event_source/devices/cpu"), ""],
        ["CPUs", os.cpu_count(), ""],
        ["glibc", platform.libc_ver()[1], ""],
        ["CPython", sys.version.split()[0], ""],
        ["torch", f"{torch.__version__}, CUDA {torch.version.cuda}, on {device()}", ""],
        ["GPUs", first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"), ""],
        ["CUPTI", cupti_version(), ""],
        ["other libcupti", ", ".join(glob.glob("/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.*")) or "none", ""],
    ]
    probes = []
    for library, names in FUNCTIONS.items():
        path = mapped(library)
        if path is None:
            probes.append([library, "not loaded", ""])
            continue
        data, offsets = symbols(path)
        for name in names:
            code = data[offsets[name]:offsets[name] + 16] if name in offsets else None
            probes.append([name, instruction(code) if code else "not exported", ""])
    doctor = bench.gctrace("doctor", check=False).stdout.strip().splitlines()
    return [
        {"title": "Machine", "head": ["", "", ""], "rows": rows},
        {"title": "First instructions", "head": ["function", "at a probe", ""], "rows": probes},
        {"title": "gctrace doctor", "head": ["", ""], "rows": [[line, ""] for line in doctor if line.strip()]},
    ]
