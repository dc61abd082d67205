"""Runs gctrace.on_ray on a Ray of this machine, in which the program that the first task starts kills
its worker. Arguments: a folder with the package gctrace and, under bin, the program; DIR; traces.
"""

import os
import sys

packages, directory, *traces = sys.argv[1:]
sys.path.insert(0, packages)
# Workers import it from there as well.
os.environ["PYTHONPATH"] = packages
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray

ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
# The driver's own init joins this one.
init, ray.init = ray.init, lambda **_: None

from gctrace import on_ray

code = on_ray.main(directory, *traces)
ray.shutdown()
sys.exit(code)
