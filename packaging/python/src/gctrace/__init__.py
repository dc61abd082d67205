"""gctrace from Python.

>>> import gctrace
>>> mark = gctrace.mark()
>>> work()
>>> print(gctrace.summary(mark))
7 pauses, 12.3 ms (0.41 % of 3.0 s), longest 4.1 ms; by gc.callbacks

- `mark()`, `summary(mark)`: collections of this process between two moments;
- `record("trace.json")`: a trace of a block of this process;
- `analyze("trace.json")`, `load("trace.json")`: the report, and the tables, of a trace;
- `apply("threshold=7000,10,10")`, `step()`: settings of the collector in this process;
- `profiler_options()`: with which torch.profiler records collections;
- `find_bin()`: the program gctrace, which the package installs; `python -m gctrace` runs it.

Importing the package imports nothing else, and changes nothing in the process.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._measure import Mark as Mark, Summary as Summary, mark as mark, summary as summary
    from ._program import ProgramError as ProgramError, Tables as Tables, analyze as analyze, load as load
    from ._record import Recording as Recording, record as record
    from ._settings import Applied as Applied, apply as apply, step as step
    from ._torch import profiler_options as profiler_options

    __version__: str

_PLACES = {
    "Mark": "_measure",
    "Summary": "_measure",
    "mark": "_measure",
    "summary": "_measure",
    "ProgramError": "_program",
    "Tables": "_program",
    "analyze": "_program",
    "load": "_program",
    "Recording": "_record",
    "record": "_record",
    "Applied": "_settings",
    "apply": "_settings",
    "step": "_settings",
    "profiler_options": "_torch",
}

__all__ = ["find_bin", *_PLACES]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("gctrace")
    if name not in _PLACES:
        raise AttributeError("module 'gctrace' has no attribute {!r}".format(name))
    from importlib import import_module

    value = getattr(import_module("." + _PLACES[name], __name__), name)
    globals()[name] = value
    return value


def find_bin() -> str:
    """Path of the program installed with this package, else of that on PATH; `GCTRACE_PROGRAM` in the environment
    names another.

    Raises FileNotFoundError if there is none.
    """
    named = os.environ.get("GCTRACE_PROGRAM")
    if named:
        return named
    import shutil
    import sysconfig

    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [
        # pip install --target
        os.path.join(packages, "bin"),
        # PREFIX/lib/pythonX.Y/site-packages: environments, pip install --user and --prefix
        os.path.normpath(os.path.join(packages, "..", "..", "..", "bin")),
        sysconfig.get_path("scripts"),
    ]
    for folder in folders:
        program = os.path.join(folder, "gctrace")
        if os.path.isfile(program):
            return program
    found = shutil.which("gctrace")
    if found:
        return found
    raise FileNotFoundError(
        "no program gctrace in {} or on PATH: set GCTRACE_PROGRAM to its path, or install a wheel that has it".format(
            ", ".join(folders)
        )
    )


def load_ipython_extension(shell: object) -> None:
    """`%load_ext gctrace`."""
    from ._notebook import register

    register(shell)
