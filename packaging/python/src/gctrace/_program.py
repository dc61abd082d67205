"""What the program gctrace makes of traces."""

import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Sequence, Union

from . import find_bin

if TYPE_CHECKING:
    from ._report import Report

PathLike = Union[str, "os.PathLike[str]"]


class ProgramError(RuntimeError):
    """gctrace ended with an error; the text is what it printed."""


def run(arguments: Sequence[PathLike]) -> bytes:
    """What gctrace prints; raises ProgramError with its message."""
    command = [find_bin(), *(os.fspath(one) for one in arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()
        raise ProgramError(message or "gctrace ended with {}".format(done.returncode))
    return done.stdout


def analyze(*traces: PathLike) -> "Report":
    """The report on traces, as `gctrace analyze --format json` has it (docs/report.schema.json).

    >>> report = gctrace.analyze("trace.json")
    >>> report["totals"]["pauses"]["count"]
    """
    report: "Report" = json.loads(run(["analyze", "--format", "json", "--", *traces]))
    return report


class Tables(Mapping[str, Any]):
    """Tables of traces by name (`pauses`, `processes`, ...), each read when it is asked for: a pandas, polars or
    pyarrow table, by what is installed, or what `reader` makes of the path of a Parquet file."""

    def __init__(self, traces: Sequence[PathLike], reader: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="gctrace-")
        self._reader = reader
        folder = os.path.join(self._folder, "tables")
        try:
            run(["export", "--format", "parquet", "-o", folder, "--", *traces])
        except BaseException:
            self.close()
            raise
        files = (name for name in sorted(os.listdir(folder)) if name.endswith(".parquet"))
        self._files: Dict[str, str] = {name[: -len(".parquet")]: os.path.join(folder, name) for name in files}
        self._read: Dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self._reader(self._files[name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return "<gctrace tables: {}>".format(", ".join(self))

    def close(self) -> None:
        """Removes the files; tables that were read stay."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_folder", None) and shutil is not None:
            self.close()


def load(*traces: PathLike, to: str = "") -> Tables:
    """The tables of traces, those of `gctrace export --format parquet`.

    `to`: `pandas`, `polars` or `pyarrow`; the first that is installed by default.

    >>> gctrace.load("trace.json")["pauses"]
    """
    return Tables(traces, _reader(to))


def _reader(to: str) -> Any:
    wanted = [to] if to else ["pandas", "polars", "pyarrow"]
    missing: List[str] = []
    for name in wanted:
        try:
            if name == "pandas":
                import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
                import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: F401

                return pandas.read_parquet
            if name == "polars":
                import polars  # type: ignore[import-not-found,unused-ignore]

                return polars.read_parquet
            if name == "pyarrow":
                import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]

                return pyarrow.parquet.read_table
        except ImportError as error:
            missing.append("{} ({})".format(name, error))
            continue
        raise ValueError("to={!r} is none of pandas, polars, pyarrow".format(to))
    raise ImportError("tables need one of pandas with pyarrow, polars, pyarrow: {}".format("; ".join(missing)))
