"""Collections of this process, by the library that gctrace has injected into it, or by `gc.callbacks`.

A process that gctrace records in-process has an entry in `gc.callbacks` already, which sums up what it records: these
sums are taken, and nothing is added. Elsewhere one entry, added with the first mark, sums up all pauses: from its call
at the start of a collection to its call at the end, so that what entries after it do at the start, and those before it
at the end, is in it.
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
    """What measured it: `gc.callbacks`, or `the injected library` of a gctrace that records this process; with
    `, which ended meanwhile` where that did not see all."""

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


class _Sums(NamedTuple):
    """What was seen until now."""

    totals: List[List[float]]
    """Of each generation: pauses, their length, objects found."""
    per_s: float
    """Lengths in `totals` that are a second; differences are exact where they are in ns."""
    longest_s: float
    """The longest pause after the first ones, as many as were asked for."""
    missed: int
    """Collections that were not recorded any more."""

    @property
    def pauses(self) -> int:
        return int(sum(one[0] for one in self.totals))


class Mark:
    """A moment, from which `summary` counts."""

    def __init__(self, source: str, sums: _Sums) -> None:
        self.at_s = time.perf_counter()
        self.source = source
        self.sums = sums


class _Meter:
    """Sums of all collections since it was installed."""

    def __init__(self) -> None:
        self.totals: List[List[float]] = [[0, 0.0, 0] for _ in range(3)]
        self.pauses = 0
        # Pauses than which none that came later was longer: (number, length), the longest first.
        self.record: List[Tuple[int, float]] = []
        self.began_s: Optional[float] = None

    def sums(self, since: int) -> _Sums:
        at = bisect_left(self.record, (since, 0.0))
        longest_s = self.record[at][1] if at < len(self.record) else 0.0
        return _Sums([list(one) for one in self.totals], 1.0, longest_s, 0)

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


_METER = _Meter()
_BY_CALLBACKS = "gc.callbacks"
_BY_LIBRARY = "the injected library"
_BUILT_IN: Any = type(len)


def _by_callbacks(since: int = 0) -> _Sums:
    # Programs clear the list, and some restore it.
    if _METER not in gc.callbacks:
        _METER.began_s = None
        gc.callbacks.append(_METER)
    return _METER.sums(since)


def _by_library(since: int = 0) -> Optional[_Sums]:
    """What the entry of gctrace's library has seen, since it was added; `None` without one.

    No reference to it is kept: the library adds it again if it is removed, which it learns as it is freed.
    """
    entries: List[Any] = list(gc.callbacks)
    for entry in entries:
        if type(entry) is _BUILT_IN and entry.__name__ == "gctrace_callback":
            found: Dict[str, int] = {"since": since}
            entry("summary", found)
            # An older library does not answer.
            if "longest_ns" in found:
                totals: List[List[float]] = [
                    [found["pauses%d" % of], found["time_ns%d" % of], found["collected%d" % of]]
                    for of in range(3)
                ]
                return _Sums(totals, 1e9, found["longest_ns"] / 1e9, found["missed"])
    return None


def mark() -> Mark:
    """A moment from which `summary` counts; the first one starts to measure, where nothing does yet."""
    found = _by_library()
    if found is not None:
        return Mark(_BY_LIBRARY, found)
    return Mark(_BY_CALLBACKS, _by_callbacks())


_FIRST: Optional[Mark] = None


def summary(since: Optional[Mark] = None) -> Summary:
    """Collections of this process since a mark; without one since the first call, which measures nothing."""
    global _FIRST
    if since is None:
        if _FIRST is None:
            _FIRST = mark()
        since = _FIRST
    before, source = since.sums, since.source
    if source == _BY_LIBRARY:
        found = _by_library(before.pauses)
        if found is None or found.missed > before.missed:
            source += ", which ended meanwhile"
        if found is None:
            found = before._replace(longest_s=0.0)
    else:
        found = _by_callbacks(before.pauses)
    generations = tuple(
        Generation(int(now[0] - then[0]), (now[1] - then[1]) / found.per_s, int(now[2] - then[2]))
        for now, then in zip(found.totals, before.totals)
    )
    return Summary(
        pauses=found.pauses - before.pauses,
        time_s=sum(one.time_s for one in generations),
        longest_s=found.longest_s,
        interval_s=time.perf_counter() - since.at_s,
        generations=generations,
        source=source,
    )


def duration(seconds: float) -> str:
    """Three digits and a unit: `12.3 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return "{:.3g} {}".format(seconds / size, unit)
    return "{:.3g} us".format(seconds * 1e6)
