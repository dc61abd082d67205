"""Collections of this process, by `gc.callbacks`.

One entry, added with the first mark, sums up all pauses: from its call at the start of a collection to its call at
the end, so that what entries after it do at the start, and those before it at the end, is in it.
"""

import gc
import time
from bisect import bisect_left
from typing import Any, Dict, List, NamedTuple, Optional, Tuple


class Generation(NamedTuple):
    """Collections of one generation."""

    pauses: int
    time_s: float
    collected: int
    """Unreachable objects that were found."""


class Summary(NamedTuple):
    """Collections of this process since a mark."""

    pauses: int
    time_s: float
    """Length of all pauses together, in seconds."""
    longest_s: float
    """The longest pause in seconds, 0 without pauses."""
    interval_s: float
    """Time since the mark, in seconds."""
    generations: Tuple[Generation, ...]
    """By generation, the youngest first."""
    source: str
    """What measured it: always `gc.callbacks`, whether the process is recorded by gctrace or not."""

    @property
    def share(self) -> float:
        """Pauses as a share of the time since the mark."""
        return self.time_s / self.interval_s if self.interval_s > 0 else 0.0

    @property
    def collected(self) -> int:
        """Unreachable objects that were found."""
        return sum(one.collected for one in self.generations)

    def __str__(self) -> str:
        return "{} pauses, {} ({:.3g} % of {}), longest {}; by {}".format(
            self.pauses,
            duration(self.time_s),
            100 * self.share,
            duration(self.interval_s),
            duration(self.longest_s),
            self.source,
        )


class Mark:
    """A moment, from which `summary` counts."""

    def __init__(self, meter: "_Meter") -> None:
        self.at_s = time.perf_counter()
        self.totals = meter.copy()
        self.pauses = meter.pauses


class _Meter:
    """Sums of all collections since it was installed."""

    def __init__(self) -> None:
        self.totals: List[List[float]] = [[0, 0.0, 0] for _ in range(3)]
        self.pauses = 0
        # Pauses than which none that came later was longer: (number, length), the longest first.
        self.record: List[Tuple[int, float]] = []
        self.began_s: Optional[float] = None

    def copy(self) -> List[List[float]]:
        return [list(one) for one in self.totals]

    def __call__(self, phase: str, info: Dict[str, Any]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self.began_s = now
            return
        if self.began_s is None:
            return
        took_s = now - self.began_s
        self.began_s = None
        of = self.totals[min(info["generation"], 2)]
        of[0] += 1
        of[1] += took_s
        of[2] += info["collected"]
        while self.record and self.record[-1][1] <= took_s:
            self.record.pop()
        self.record.append((self.pauses, took_s))
        self.pauses += 1

    def longest_since(self, pauses: int) -> float:
        at = bisect_left(self.record, (pauses, 0.0))
        return self.record[at][1] if at < len(self.record) else 0.0


_METER = _Meter()


def _installed() -> _Meter:
    # Programs clear the list, and some restore it.
    if _METER not in gc.callbacks:
        _METER.began_s = None
        gc.callbacks.append(_METER)
    return _METER


def mark() -> Mark:
    """A moment from which `summary` counts; the first one starts to measure."""
    return Mark(_installed())


_FIRST: Optional[Mark] = None


def summary(since: Optional[Mark] = None) -> Summary:
    """Collections of this process since a mark; without one since the first call, which measures nothing."""
    global _FIRST
    if since is None:
        if _FIRST is None:
            _FIRST = mark()
        since = _FIRST
    meter = _installed()
    generations = tuple(
        Generation(int(now[0] - then[0]), now[1] - then[1], int(now[2] - then[2]))
        for now, then in zip(meter.copy(), since.totals)
    )
    return Summary(
        pauses=meter.pauses - since.pauses,
        time_s=sum(one.time_s for one in generations),
        longest_s=meter.longest_since(since.pauses),
        interval_s=time.perf_counter() - since.at_s,
        generations=generations,
        source="gc.callbacks",
    )


def duration(seconds: float) -> str:
    """Three digits and a unit: `12.3 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return "{:.3g} {}".format(seconds / size, unit)
    return "{:.3g} us".format(seconds * 1e6)
