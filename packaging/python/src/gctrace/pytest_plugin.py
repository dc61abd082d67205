"""`pytest --gctrace`: what the garbage collector does in each test, and limits for it.

- `@pytest.mark.gc_limit(share=0.02, longest_ms=50, total_ms=200, collections=10)` fails a test that passes otherwise,
  with or without `--gctrace`; a test's own failure wins. `share` is judged in tests of 0.1 s or longer: below, one
  collection decides.
- `--gctrace` lists the tests with the longest pauses, and gives each JUnit properties: `gc_collections`, `gc_ms`,
  `gc_longest_ms`, `gc_share`.
- `--gctrace-output FILE` records the session, below gctrace: `gctrace analyze FILE` has lines and advice.

Pauses are those of `gc.callbacks` while the test itself runs, without fixtures. Workers of pytest-xdist measure too.
"""

import os
import subprocess
import sys
from typing import Any, Dict, Generator, List, Optional, Tuple

import pytest

from . import find_bin
from ._measure import Summary, duration, mark, summary

_BELOW = "GCTRACE_PYTEST"
"""In the environment of the pytest that gctrace records."""
_LEAST_S = 0.1
"""The shortest test whose share of collections is judged, in seconds."""
_LISTED = 10
_LIMITS = ("share", "longest_ms", "total_ms", "collections")


def pytest_addoption(parser: "pytest.Parser") -> None:
    group = parser.getgroup("gctrace")
    group.addoption("--gctrace", action="store_true", help="measure the garbage collector in each test")
    group.addoption("--gctrace-output", metavar="FILE", help="record the session into this trace")


def pytest_configure(config: "pytest.Config") -> None:
    config.addinivalue_line(
        "markers",
        "gc_limit(share=None, longest_ms=None, total_ms=None, collections=None): "
        "fail if the garbage collector takes more in this test (gctrace)",
    )
    if config.getoption("--gctrace"):
        config.pluginmanager.register(_Report(), "gctrace-report")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: "pytest.Config") -> Optional[int]:
    """Runs the session again, below gctrace."""
    output = config.getoption("--gctrace-output")
    is_worker = hasattr(config, "workerinput")
    if not output or is_worker or os.environ.get(_BELOW):
        return None
    try:
        program = find_bin()
    except FileNotFoundError as error:
        raise pytest.UsageError("--gctrace-output: {}".format(error)) from None
    arguments = _without_output([str(one) for one in config.invocation_params.args])
    command = [program, "record", "-q", "-o", output, "--", sys.executable, "-m", "pytest", *arguments]
    return subprocess.call(command, env=dict(os.environ, **{_BELOW: "1"}))


def _without_output(arguments: List[str]) -> List[str]:
    """gctrace refuses an output that its command names too."""
    kept: List[str] = []
    is_value = False
    for argument in arguments:
        if is_value:
            is_value = False
        elif argument == "--gctrace-output":
            is_value = True
        elif not argument.startswith("--gctrace-output="):
            kept.append(argument)
    return kept


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: "pytest.Item") -> Generator[None, Any, None]:
    marks = list(item.iter_markers("gc_limit"))
    if not marks and not item.config.getoption("--gctrace"):
        yield
        return
    begun = mark()
    outcome = yield
    found = summary(begun)
    item.user_properties.extend(_properties(found).items())
    if outcome.excinfo is not None:
        return
    limits: Dict[str, Any] = {}
    for one in reversed(marks):
        unknown = [name for name in one.kwargs if name not in _LIMITS]
        if unknown or one.args:
            text = "gc_limit: {} is none of {}".format(unknown or one.args, ", ".join(_LIMITS))
            outcome.force_exception(pytest.fail.Exception(text, pytrace=False))
            return
        limits.update(one.kwargs)
    exceeded = _exceeded(found, limits)
    if exceeded:
        text = "garbage collector: {}".format("; ".join(exceeded))
        outcome.force_exception(pytest.fail.Exception(text, pytrace=False))


def _properties(found: Summary) -> Dict[str, Any]:
    return {
        "gc_collections": found.pauses,
        "gc_ms": round(1e3 * found.time_s, 3),
        "gc_longest_ms": round(1e3 * found.longest_s, 3),
        "gc_share": round(found.share, 4),
    }


def _exceeded(found: Summary, limits: Dict[str, Any]) -> List[str]:
    exceeded = []
    share, longest_ms = limits.get("share"), limits.get("longest_ms")
    total_ms, collections = limits.get("total_ms"), limits.get("collections")
    if share is not None and found.interval_s >= _LEAST_S and found.share > share:
        exceeded.append("{:.3g} % of the test, limit {:.3g} %".format(100 * found.share, 100 * share))
    if longest_ms is not None and 1e3 * found.longest_s > longest_ms:
        exceeded.append("longest pause {}, limit {} ms".format(duration(found.longest_s), longest_ms))
    if total_ms is not None and 1e3 * found.time_s > total_ms:
        exceeded.append("{} in all, limit {} ms".format(duration(found.time_s), total_ms))
    if collections is not None and found.pauses > collections:
        exceeded.append("{} collections, limit {}".format(found.pauses, collections))
    return exceeded


class _Report:
    """The section at the end; with pytest-xdist, that of the process that has the terminal."""

    def __init__(self) -> None:
        self.tests: List[Tuple[float, Dict[str, Any], str]] = []

    def pytest_runtest_logreport(self, report: "pytest.TestReport") -> None:
        found = dict(report.user_properties)
        if report.when == "call" and found.get("gc_collections"):
            self.tests.append((float(found["gc_ms"]), found, report.nodeid))  # type: ignore[arg-type]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("garbage collector")
        if not self.tests:
            terminalreporter.write_line("no collection in any test")
        self.tests.sort(key=lambda one: -one[0])
        for took_ms, found, test in self.tests[:_LISTED]:
            terminalreporter.write_line(
                "{:>9.2f} ms {:>6.1%} {:>6} collections, longest {:>9.2f} ms  {}".format(
                    took_ms, found["gc_share"], found["gc_collections"], found["gc_longest_ms"], test
                )
            )
