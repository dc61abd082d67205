"""OpenTelemetry: long pauses as spans of the trace that is active in the thread, and metrics, by the program's own SDK.

>>> from gctrace.otel import instrument
>>> instrument(longest_ms=50)

A pause over `longest_ms` is a span `gc.pause`, a child of the span that is active in the thread that collects, with
`gc.generation` and `gc.collected`. All pauses go into the histogram `cpython.gc.pause` (seconds) with the attribute
`generation`. Spans and metrics go where the program's providers send them; without a provider nowhere. Only the
OpenTelemetry API is imported.

A collection interrupts a thread anywhere, also where the SDK holds a lock: nothing but a note is made in it. A thread
passes notes on each second, and as the program ends.
"""

import atexit
import gc
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Tuple

from opentelemetry import metrics, trace  # type: ignore[import-not-found,unused-ignore]

_MOST = 10_000
"""Pauses that wait to be passed on; of more, the oldest are lost."""
_EACH_S = 1.0
"""How often they are, in seconds."""


def instrument(longest_ms: float = 50.0) -> Callable[[], None]:
    """Begins; returns the function that ends it, after which all is passed on."""
    pauses = _Pauses(longest_ms)
    gc.callbacks.append(pauses)
    ends = threading.Event()

    def pass_on() -> None:
        while not ends.wait(_EACH_S):
            pauses.pass_on()

    thread = threading.Thread(target=pass_on, name="gctrace-otel", daemon=True)
    thread.start()

    def end() -> None:
        if pauses in gc.callbacks:
            gc.callbacks.remove(pauses)
        ends.set()
        thread.join()
        pauses.pass_on()
        atexit.unregister(end)

    # Before the providers end: what is registered last is called first.
    atexit.register(end)
    return end


class _Pauses:
    """An entry in `gc.callbacks`."""

    def __init__(self, longest_ms: float) -> None:
        self.longest_ns = int(longest_ms * 1e6)
        self.begun = (0, 0)
        self.noted: Deque[Tuple[int, int, Dict[str, Any], Any]] = deque(maxlen=_MOST)
        self.tracer = trace.get_tracer("gctrace")
        self.histogram = metrics.get_meter("gctrace").create_histogram(
            "cpython.gc.pause", unit="s", description="Length of collections of CPython's cyclic garbage collector"
        )

    def __call__(self, phase: str, info: Dict[str, Any]) -> None:
        if phase == "start":
            self.begun = (time.time_ns(), time.perf_counter_ns())
        else:
            took_ns = time.perf_counter_ns() - self.begun[1]
            active = trace.get_current_span().get_span_context()
            self.noted.append((self.begun[0], took_ns, dict(info), active))

    def pass_on(self) -> None:
        while self.noted:
            at_ns, took_ns, info, active = self.noted.popleft()
            self.histogram.record(took_ns / 1e9, {"generation": info["generation"]})
            if took_ns >= self.longest_ns:
                # A span without a trace is the root of its own.
                parent = trace.set_span_in_context(trace.NonRecordingSpan(active))
                found = {"gc.generation": info["generation"], "gc.collected": info["collected"]}
                span = self.tracer.start_span("gc.pause", context=parent, start_time=at_ns, attributes=found)
                span.end(end_time=at_ns + took_ns)
