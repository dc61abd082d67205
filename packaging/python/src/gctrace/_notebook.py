"""`%load_ext gctrace`: the collector in a cell.

- `%%gctrace [probes]` runs a cell and prints its collections, the lines that triggered them, and what they freed;
- `%gctrace_report` shows the page of the last such cell.
"""

import html
import os
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ._measure import duration
from ._program import ProgramError, analyze, run
from ._record import Recording, cell_numbers

_LISTED = 5


class _CellNumbers(Mapping[str, int]):
    """Numbers of cells by the names of their files; those that run from now on are within the current cell."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self.known = known
        self.current = max(known.values(), default=0)

    def __getitem__(self, file: str) -> int:
        return min(self.known[file], self.current)

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


class _Page:
    """A page in a cell."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text


class _Cells:
    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.folder: Optional[tempfile.TemporaryDirectory[str]] = None

    def trace(self) -> str:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="gctrace-")
        return os.path.join(self.folder.name, "cell.json")

    def cell(self, line: str, cell: str) -> None:
        # Kernel probes, if they are asked for, find the numbers themselves.
        cells = _CellNumbers(cell_numbers())
        with Recording(self.trace(), line.strip() or "callbacks", cells) as recording:
            # Lines are counted as they are seen, from that of the magic on; another cell magic must come first.
            self.shell.run_cell(cell if cell.startswith("%%") else "#\n" + cell)
        try:
            report: Dict[str, Any] = dict(analyze(self.trace()))
        except ProgramError as error:
            print("gctrace:", error)
            return
        print("\n".join(self._lines(report, recording.source)))

    def _lines(self, report: Dict[str, Any], source: str) -> List[str]:
        totals, pauses = report["totals"], report["totals"]["pauses"]
        lines = [
            "gctrace: {} pauses, {} ({:.3g} % of {}), longest {}; {} objects freed; by {}".format(
                pauses["count"],
                duration(pauses["time_ns"] / 1e9),
                100 * pauses["time_ns"] / max(totals["observed_ns"], 1),
                duration(totals["observed_ns"] / 1e9),
                duration((pauses["max_ns"] or 0) / 1e9),
                pauses["collected"],
                source,
            )
        ]
        own = (report["lines"] or {}).get("own", [])
        # Between the recording's begin and the cell's.
        own = [line for line in own if line["location"]["file"] != __file__]
        for line in own[:_LISTED]:
            lines.append("  {:>6.1%}  {}".format(line["time_ratio"], _named(line["location"])))
        return lines

    def page(self, line: str) -> Optional["_Page"]:
        if self.folder is None or not os.path.exists(self.trace()):
            print("gctrace: no cell was measured: %%gctrace")
            return None
        path = os.path.join(self.folder.name, "cell.html")
        run(["report", "-f", "-o", path, "--", self.trace()])
        with open(path, encoding="utf-8") as file:
            page = file.read()
        return _Page(
            '<iframe title="gctrace" sandbox="allow-scripts" style="width:100%;height:600px;border:0" '
            'srcdoc="{}"></iframe>'.format(html.escape(page, quote=True))
        )


def _named(place: Dict[str, Any]) -> str:
    name = os.path.basename(place.get("file") or "unknown")
    return "{}:{} in {}".format(name, place.get("line") or "?", place.get("function") or "?")


def register(shell: Any) -> None:
    """Adds the magics to a shell."""
    cells = _Cells(shell)
    shell.register_magic_function(cells.cell, "cell", "gctrace")
    shell.register_magic_function(cells.page, "line", "gctrace_report")
