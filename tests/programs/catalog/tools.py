"""Tools that run Python programs: test runners, debuggers, profilers, notebooks, packagers."""

from program import INJECT
from program import Program

# Durations in the output of pytest and tox.
TIMES = (r"in \d+\.\d+ ?s(econds)?", "in N s"), (r"\d+\.\d+", "N")

PROGRAMS = [
    Program("python", ["{python}", "{scripts}/work.py"], short=True),
    Program(
        "pytest_xdist",
        ["{python}", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "2", "{suite}"],
        python="venv",
        modules=["xdist"],
        processes=3,
        short=True,
        normalize=[*TIMES, (r"^[.]+ +\[.*\]$", "dots"), (r"bringing up nodes.*", "")],
    ),
    Program(
        "tox",
        ["{python}", "-m", "tox", "-q", "-c", "{suite}/tox.ini", "--workdir", "{work}/tox"],
        python="venv",
        modules=["tox", "pytest"],
        unseen={INJECT: "tox removes LD_PRELOAD from the environment of the tests"},
        normalize=[*TIMES, (r"congratulations.*", "congratulations")],
    ),
    Program(
        "jupyter_nbconvert",
        ["{python}", "-m", "nbconvert", "--to", "markdown", "--execute", "--stdout", "{suite}/notebook.ipynb"],
        python="venv",
        modules=["nbconvert", "ipykernel"],
        processes=2,
        stderr=False,
    ),
    Program(
        "gdb_run",
        ["gdb", "-q", "-nx", "-batch", "-ex", "run", "--args", "{python}", "{scripts}/work.py"],
        tools=["gdb"],
        short=True,
        normalize=[(r"process \d+", "process N"), (r"0x[0-9a-f]+", "0x"), (r"\(LWP \d+\)", "(LWP N)")],
    ),
    Program(
        "strace",
        ["strace", "-f", "-o", "{work}/calls", "{python}", "{scripts}/pools.py", "fork"],
        tools=["strace"],
        processes=3,
        excluded={INJECT: "a user without capabilities may not use ptrace in root's mount namespace"},
    ),
    Program(
        "memray",
        ["{python}", "-m", "memray", "run", "-q", "-o", "{work}/memray.bin", "{scripts}/work.py"],
        python="venv",
        modules=["memray"],
        stderr=False,
    ),
    Program(
        "py_spy_beside",
        ["{python}", "{scripts}/py_spy.py"],
        python="venv",
        tools=["py-spy"],
        root=True,
    ),
    Program("coverage_by_trace", ["{python}", "-m", "trace", "--count", "-C", "{work}/counts", "{scripts}/work.py"]),
    Program("cprofile", ["{python}", "-m", "cProfile", "-o", "{work}/profile", "{scripts}/work.py"]),
    Program("zipapp", ["{python}", "{scripts}/zipped.py"], processes=2),
    Program("pip_list", ["{python}", "-m", "pip", "list"], python="venv", modules=["pip"]),
]
