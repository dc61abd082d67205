"""torch.profiler with the package's options: its trace has the program's collections.

    package_torch.py FOLDER       (PYTHONPATH with the package, GCTRACE_PROGRAM; a Python with PyTorch)
"""

import gc
import os
import sys

import torch
from torch.profiler import ProfilerActivity, profile

import gctrace

path = os.path.join(sys.argv[1], "profile.json")
gc.disable()
with profile(activities=[ProfilerActivity.CPU], **gctrace.profiler_options()) as profiled:
    x = torch.ones(10, 10)
    for _ in range(5):
        x = x @ x
        gc.collect()
profiled.export_chrome_trace(path)
found = gctrace.analyze(path)["totals"]["pauses"]
assert found["count"] == 5, found
print("ok")
