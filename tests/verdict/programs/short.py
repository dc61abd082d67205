#!/usr/bin/env python3
"""Ends at once: too short to judge."""

import gc

gc.collect()
