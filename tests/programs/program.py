"""Defines a program of the tier. The programs themselves are in catalog/."""

import dataclasses
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"

# The modes of recording, and `gctrace apply`.
EBPF, INJECT, BOTH, APPLY = "ebpf", "inject", "both", "apply"
MODES = (EBPF, INJECT, BOTH, APPLY)


@dataclasses.dataclass(frozen=True)
class Program:
    """A command that is run untraced and in every mode.

    `command` and `build` may contain `{python}` (see `python`), `{scripts}`, `{suite}`, `{user}`
    (an ordinary user's name), `{built}` (the folder for the results of `build`) and `{work}` (the
    run's own folder, which is also its current one). The command should print what it did to
    stdout, the same every time.
    """

    name: str
    command: Sequence[str]
    # Which python: "venv" (scripts/test/programs-venv.sh), "torch" (scripts/torch-venv.sh), "system", or
    # a name from .interpreters/manifest.tsv.
    python: str = "system"
    # Modules and tools that must be available there; otherwise the program is skipped.
    modules: Sequence[str] = ()
    tools: Sequence[str] = ()
    # Commands that prepare the program, once and untraced.
    build: Sequence[Sequence[str]] = ()
    # Whether it is part of the short form, which runs in continuous integration.
    short: bool = False
    # Maximum seconds of a run on a busy machine.
    limit: float = 300
    code: int = 0
    # Minimum number of processes that must have written their collector's counters; 0: not checked.
    processes: int = 1
    # Modes in which it is not run (those of `inject` count for `apply` too), and those in which some
    # collections are not seen, with the reason. Then the trace must not claim to be complete.
    excluded: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unseen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The arguments of `gctrace apply`, which is then the only mode; none: the thresholds that the Python has anyway.
    setting: Sequence[str] = ()
    # Whether it needs root in the modes inject and apply too, where an ordinary user runs the others.
    root: bool = False
    # Whether it runs in its own terminal (stdout and stderr are one there).
    terminal: bool = False
    # Whether stderr must be the same as well.
    stderr: bool = True
    # Regular expressions and their replacements, applied before outputs are compared.
    normalize: Sequence[tuple[str, str]] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Additional results to compare: reads them from the run's folder.
    results: Callable[[pathlib.Path], object] | None = None

    def why_excluded(self, mode):
        """Why it is not run in a mode, or None."""
        return self.excluded.get(INJECT if mode == APPLY else mode)
