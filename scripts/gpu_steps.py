#!/usr/bin/env python3
"""Runs a PyTorch program under torch.profiler and keeps what the profiler saw.

    python gpu_steps.py OUT PROGRAM [ARGUMENTS...]

Writes OUT/profile.json (the profiler's trace, with CUDA's calls and kernels) and
OUT/steps.json: the process, the stretch of time.monotonic_ns() in which the
program ran, and versions. Part of gpu-check.sh; the program is not changed.
"""

import json
import os
import pathlib
import runpy
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def main():
    out, program, *arguments = sys.argv[1:]
    out = pathlib.Path(out)
    # The first use of CUDA and of the profiler do things of their own.
    with profile(activities=ACTIVITIES):
        torch.ones(2, device="cuda").sum().item()
    sys.argv = [program, *arguments]
    with profile(activities=ACTIVITIES) as profiler:
        torch.cuda.synchronize()
        begin_ns = time.monotonic_ns()
        runpy.run_path(program, run_name="__main__")
        torch.cuda.synchronize()
        end_ns = time.monotonic_ns()
    profiler.export_chrome_trace(str(out / "profile.json"))
    device = torch.cuda.current_device()
    steps = {
        "pid": os.getpid(),
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "gpu": f"GPU-{torch.cuda.get_device_properties(device).uuid}",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
    }
    (out / "steps.json").write_text(json.dumps(steps))


if __name__ == "__main__":
    main()
