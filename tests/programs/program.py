"""The definition of a program of the tier. The programs themselves are in catalog/."""

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
    # Which python: "venv" (scripts/programs-venv.sh), "torch" (scripts/torch-venv.sh), "system", or
    # a name from .interpreters/manifest.tsv.
    python: str = "system"
    # Modules and commands that it needs; otherwise the program is skipped.
    modules: Sequence[str] = ()
    tools: Sequence[str] = ()
    # Commands that create what it needs, once and untraced.
    build: Sequence[Sequence[str]] = ()
    # Part of the short form, which runs in continuous integration.
    short: bool = False
    # Time limit of a run in seconds, on a busy machine.
    limit: float = 300
    code: int = 0
    # How many processes must have written what their collector counted; 0: none.
    processes: int = 1
    # Modes in which it is not run, and those in which some collections are not recorded, with the
    # reason. A trace that misses collections must not be called complete.
    excluded: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unseen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Needs root in mode inject too, in which an ordinary user runs the others.
    root: bool = False
    # Runs in a terminal of its own (to which stdout and stderr are connected).
    terminal: bool = False
    # Whether stderr must be the same as well.
    stderr: bool = True
    # Regular expressions and their replacements, applied before outputs are compared.
    normalize: Sequence[tuple[str, str]] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # More to compare: reads it from the run's folder.
    results: Callable[[pathlib.Path], object] | None = None
