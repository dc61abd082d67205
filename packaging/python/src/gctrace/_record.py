"""A trace of a block of this process.

Where gctrace may attach kernel probes, its recorder does, and the trace is that of `gctrace record -p`. Elsewhere
an entry in `gc.callbacks` writes the same format: pauses, generations, stacks and how many objects were found;
docs/tasks/python.md has what that lacks.
"""

import gc
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from . import find_bin

PathLike = Union[str, "os.PathLike[str]"]

_STACK_DEPTH = 24
"""Frames of a stack, as of the recorder."""
_ATTACH_S = 20.0
"""The longest wait for the recorder to begin, in seconds."""


class Recording:
    """A recording that has begun; ends with `stop()`, or its `with` block."""

    def __init__(self, output: PathLike, by: str, cells: Optional[Mapping[str, int]] = None) -> None:
        self.path = os.fspath(output)
        if by not in ("", "probes", "callbacks"):
            raise ValueError("by={!r} is neither 'probes' nor 'callbacks'".format(by))
        if self.path.endswith((".gz", ".zst")):
            raise ValueError("{!r}: a block is recorded without compression, as .json".format(self.path))
        self.source = ""
        """What records: `kernel probes`, or `gc.callbacks`."""
        self.why = ""
        """Why kernel probes do not; empty if they do, or were not tried."""
        self._recorder: Union[_Probes, _Callbacks, None] = None
        if by != "callbacks":
            try:
                self._recorder = _Probes(self.path)
                self.source = "kernel probes"
            except (OSError, RuntimeError) as error:
                self.why = str(error)
                if by == "probes":
                    raise RuntimeError(self.why) from None
        if self._recorder is None:
            self._recorder = _Callbacks(self.path, cells or {})
            self.source = "gc.callbacks"

    def stop(self) -> None:
        """Ends the recording; the trace is complete then."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def record(output: PathLike = "trace.json", by: str = "") -> Recording:
    """Records the collections of this process until the end of the `with` block.

    `by`: `probes` or `callbacks`; probes if they may be attached (root, or file capabilities) by default. The
    recording's `source` says which it was, and `why` why not the other. An existing trace is replaced.

    >>> with gctrace.record("trace.json"):
    ...     train()
    >>> print(gctrace.analyze("trace.json")["totals"])
    """
    return Recording(output, by, cell_numbers())


def cell_numbers() -> Mapping[str, int]:
    """IPython's numbers of cells by the names of their files, which grow as cells run; none where it does not run."""
    shells = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    compiler = getattr(getattr(shells, "_instance", None), "compile", None)
    numbers: Mapping[str, int] = getattr(compiler, "_filename_map", {})
    return numbers


class _Probes:
    """`gctrace record -p` of this process, as its child."""

    def __init__(self, path: str) -> None:
        if os.path.exists(path):
            os.replace(path, path + ".old")
        command = [find_bin(), "record", "-q", "--mode", "ebpf", "--no-follow", "-o", path, "-p", str(os.getpid())]
        self.pid = os.getpid()
        self.messages = tempfile.TemporaryFile()
        self.child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.messages
        )
        deadline = time.monotonic() + _ATTACH_S
        while self.child.poll() is None and time.monotonic() < deadline:
            if self._has_begun(path):
                return
            time.sleep(0.01)
        self.child.kill()
        self.child.wait()
        raise RuntimeError(self._said() or "gctrace did not begin to record")

    @staticmethod
    def _has_begun(path: str) -> bool:
        """Whether the trace says from when on the pauses of this process are complete."""
        try:
            with open(path, "rb") as trace:
                return b'"name":"gctrace_process"' in trace.read(1 << 20)
        except OSError:
            return False

    def _said(self) -> str:
        self.messages.seek(0)
        return self.messages.read().decode(errors="replace").strip()

    def stop(self) -> None:
        if os.getpid() != self.pid:
            # A forked child leaves the block: the recording is its parent's.
            return
        self.child.send_signal(signal.SIGINT)
        if self.child.wait() != 0:
            raise RuntimeError(self._said() or "gctrace ended with {}".format(self.child.returncode))


class _Callbacks:
    """Writes pauses that an entry in `gc.callbacks` sees."""

    def __init__(self, path: str, cells: Mapping[str, int]) -> None:
        # Files of a notebook's cells, and their numbers; it grows as cells run.
        self.cells = cells
        # Without a buffer: a forked child would write what is in it again.
        self.file = open(path, "wb", buffering=0)
        self.pid = os.getpid()
        self.frames: Dict[Tuple[Optional[int], str, str, int], int] = {}
        self.threads: Dict[int, None] = {}
        self.lines: List[str] = []
        self.began: Optional[Tuple[int, int, Optional[FrameType]]] = None
        self.started_ns = time.monotonic_ns()
        self._write_start()
        gc.callbacks.append(self._collects)

    def stop(self) -> None:
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)
        ended_ns = time.monotonic_ns()
        if os.getpid() == self.pid:
            self._event(
                "gctrace_end",
                ended_ns,
                {
                    "ended_ns": ended_ns,
                    "why": "the block of gctrace.record ended",
                    "lost": {},
                    "processes": {"python": 1, "other": 0, "unexamined": {}},
                    "omitted": {"count": 0, "total_ns": 0},
                    "probes": [],
                },
                pid=0,
            )
            self._flush()
            self.file.seek(-2, os.SEEK_CUR)
            self._write("\n]}\n")
        self.file.close()

    def _event(self, name: str, at_ns: Optional[int], args: Dict[str, Any], pid: int) -> None:
        event: Dict[str, Any] = {"ph": "M", "name": name, "pid": pid, "tid": pid}
        if at_ns is not None:
            event["ts"] = "TS"
        event["args"] = args
        text = json.dumps(event, separators=(",", ":"))
        if at_ns is not None:
            text = text.replace('"ts":"TS"', '"ts":' + _us(at_ns), 1)
        self.lines.append(text)

    def _write_start(self) -> None:
        command = [sys.executable or "python", *sys.argv]
        self._write('{"displayTimeUnit":"ns","traceEvents":[')
        header = {
            "format": "gctrace.trace/1",
            "gctrace": "python",
            "command": command,
            "attached_pid": self.pid,
            "host": platform.node(),
            "kernel": platform.release(),
            "cpus": os.cpu_count() or 0,
            "started_ns": self.started_ns,
            "started_unix_ns": time.time_ns(),
            "min_pause_ns": 0,
            "follow": False,
            "stack_depth": _STACK_DEPTH,
            "cuda": "off",
            "mode": "inject",
            "counters": [],
            "counters_missing": {},
        }
        self._event("gctrace_header", self.started_ns, header, pid=0)
        self._event("process_name", None, {"name": " ".join(command)}, pid=self.pid)
        free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
        process = {
            "origin": "attached",
            "command": command,
            "interpreter": {
                "file": sys.executable or "python",
                "version": platform.python_version(),
                "free_threaded": free_threaded,
                "collector": "free-threaded" if free_threaded else "generational",
                "found_by": "gctrace.record",
            },
        }
        self._event("gctrace_process", self.started_ns, process, pid=self.pid)
        settings = {"enabled": gc.isenabled(), "thresholds": list(gc.get_threshold())}
        self._event("gctrace_settings", self.started_ns, settings, pid=self.pid)
        self._flush()

    def _flush(self) -> None:
        # First: while it writes, another thread may collect.
        lines, self.lines = self.lines, []
        if lines:
            self._write(",\n".join(lines) + ",\n")

    def _write(self, text: str) -> None:
        left = memoryview(text.encode())
        while left:
            left = left[self.file.write(left) :]

    def _collects(self, phase: str, info: Dict[str, Any]) -> None:
        if phase == "start":
            # The frame that collects is the caller of this one.
            self.began = (time.monotonic_ns(), threading.get_native_id(), sys._getframe(0).f_back)
            return
        now_ns = time.monotonic_ns()
        if self.began is None or os.getpid() != self.pid:
            return
        (start_ns, tid, frame), self.began = self.began, None
        if tid not in self.threads:
            self.threads[tid] = None
            name = threading.current_thread().name
            event = {"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "args": {"name": name}}
            self.lines.append(json.dumps(event, separators=(",", ":")))
        stack = self._stack(frame)
        generation = info["generation"]
        self.lines.append(
            '{{"ph":"X","cat":"gc","name":"gc gen{0}","pid":{1},"tid":{2},"ts":{3},"dur":{4},{5}"args":{{'
            '"reason":"unknown","generation":{0},"collected":{6},"uncollectable":{7},"interpreter":0,'
            '"source":"injected"}}}}'.format(
                generation,
                self.pid,
                tid,
                _us(start_ns),
                _us(now_ns - start_ns),
                "" if stack is None else '"sf":{},'.format(stack),
                info["collected"],
                info["uncollectable"],
            )
        )
        if len(self.lines) >= 1000:
            self._flush()

    def _stack(self, frame: Optional[FrameType]) -> Optional[int]:
        frames: List[FrameType] = []
        while frame is not None and len(frames) < _STACK_DEPTH:
            frames.append(frame)
            frame = frame.f_back
        parent: Optional[int] = None
        if frame is not None:
            parent = self._frame(None, "[outer frames not recorded]", "", 0)
        for one in reversed(frames):
            code = one.f_code
            name = getattr(code, "co_qualname", code.co_name)
            parent = self._frame(parent, name, code.co_filename, one.f_lineno or 0)
        return parent

    def _frame(self, parent: Optional[int], function: str, file: str, line: int) -> int:
        key = (parent, function, file, line)
        known = self.frames.get(key)
        if known is None:
            known = self.frames[key] = len(self.frames) + 1
            args: Dict[str, Any] = {"id": known}
            if parent is not None:
                args["parent"] = parent
            args["function"] = function
            if file:
                cell = self.cells.get(file)
                # As IPython names them, by which reports know the number.
                args["file"] = file if cell is None else "<ipython-input-{}-cell>".format(cell)
                args["line"] = line
            self._event("gctrace_frame", None, args, pid=0)
        return known


def _us(ns: int) -> str:
    """As `ts` and `dur` are written: microseconds with exactly three decimals."""
    return "{}.{:03d}".format(ns // 1000, ns % 1000)
