"""What a program of the tier is. The programs themselves are in catalog/."""

import dataclasses
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"

EBPF, INJECT, BOTH = "ebpf", "inject", "both"
MODES = (EBPF, INJECT, BOTH)


@dataclasses.dataclass(frozen=True)
class Program:
    """A command that is run untraced and in every mode.

    In `command` and `build` stand `{python}` (see `python`), `{scripts}`, `{suite}`, `{user}` (an
    ordinary user's name), `{built}` (the folder for what `build` makes) and `{work}` (the run's own
    folder, which is also its current one). The command should say what it did on stdout, the same
    every time.
    """

    name: str
    command: Sequence[str]
    # Whose python: "venv" (scripts/programs-venv.sh), "torch" (scripts/torch-venv.sh), "system",
    # or a name from .interpreters/manifest.tsv.
    python: str = "system"
    # What must be importable there, and on the search path; otherwise the program is skipped.
    modules: Sequence[str] = ()
    tools: Sequence[str] = ()
    # Commands that make what it needs, once and untraced.
    build: Sequence[Sequence[str]] = ()
    # A part of the short form, which runs in continuous integration.
    short: bool = False
    # Seconds that a run may take on a busy machine.
    limit: float = 300
    code: int = 0
    # How many processes must have written what their collector counted; 0: none is asked to.
    processes: int = 1
    # Modes in which it is not run, and those in which some collections are not seen, with the reason.
    # What is not seen must not be called complete.
    excluded: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unseen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Needs root in mode inject too, where an ordinary user runs the others.
    root: bool = False
    # Runs in a terminal of its own (stdout and stderr are one there).
    terminal: bool = False
    # Whether stderr must be the same as well.
    stderr: bool = True
    # Regular expressions and what they are replaced by before outputs are compared.
    normalize: Sequence[tuple[str, str]] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # More to compare: reads it from the run's folder.
    results: Callable[[pathlib.Path], object] | None = None
