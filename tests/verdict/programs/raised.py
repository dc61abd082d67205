#!/usr/bin/env python3
"""closures.py with a raised threshold: nothing is left to gain by raising it."""

import gc

gc.set_threshold(10_000, 10, 10)

import closures  # noqa: E402, F401  runs when imported
