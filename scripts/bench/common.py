"""What the parts of bench.py share."""

import os
import pathlib
import statistics
import time


def wait_until_attached(tracer, fewest=2):
    """bpftrace does not report when it is ready (its output is buffered): it is once it has opened
    its perf events, at least one per probe, and opens no more."""
    seen, since = 0, time.monotonic()
    while seen < fewest or time.monotonic() - since < 0.5:
        if tracer.poll() is not None:
            raise RuntimeError(f"bpftrace ended with status {tracer.returncode}")
        if time.monotonic() - since > 20:
            raise RuntimeError("bpftrace does not attach")
        time.sleep(0.05)
        events = sum(perf_event(fd) for fd in pathlib.Path(f"/proc/{tracer.pid}/fd").iterdir())
        if events != seen:
            seen, since = events, time.monotonic()


def perf_event(fd):
    try:
        return "perf_event" in os.readlink(fd)
    except OSError:  # closed meanwhile
        return False


def spread(ratios):
    if len(ratios) < 4:
        return f"{statistics.median(ratios):.4f}"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.4f} ({low:.4f} - {high:.4f})"
