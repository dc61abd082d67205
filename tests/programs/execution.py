"""Runs a program once, untraced or in a mode, as root or as an ordinary user, with a time limit.

Owned here: users, folders, environment, and the results of a run. Not here: their comparison.
"""

import dataclasses
import functools
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time

import leftovers
from program import APPLY
from program import HERE
from program import INJECT
from program import SCRIPTS

CHECKOUT = HERE.parent.parent
AS_USER = HERE.parent / "as_user.sh"
TRUTH = HERE / "truth"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass
class Outcome:
    """The results of a run, normalized; `problems` must not occur in any run."""

    code: int | None
    stdout: str
    stderr: str
    results: object
    problems: list[str]
    own_words: str
    seconds: float
    truth: pathlib.Path
    trace: pathlib.Path | None


class User:
    """An ordinary user, created for this tier and removed at its end."""

    def __init__(self, home):
        self.name = f"gctp{os.getpid() % 1000000}"
        subprocess.run(
            ["useradd", "--home-dir", str(home), "--create-home", "--shell", "/bin/bash", "--user-group", self.name],
            check=True,
        )
        self.record = pwd.getpwnam(self.name)

    def remove(self):
        subprocess.run(["userdel", self.name], check=False)


def temporary_folder(parent):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gctp.", dir=parent))
    folder.chmod(0o755)
    return folder


class Machine:
    """The folder of this run of the tier, with the binary under test in it, and the pythons."""

    def __init__(self, gctrace, pythons):
        self.folder = temporary_folder("/tmp")
        self.pythons = pythons
        # Readable by all users, and writable by root alone: gctrace requires that for its library.
        self.binaries = temporary_folder("/var/lib")
        for file in (gctrace, gctrace.parent / "libgctrace_inject.so"):
            shutil.copy(file, self.binaries)
        self.gctrace = self.binaries / "gctrace"
        self.built = self.folder / "built"
        self.built.mkdir()
        self.user = User(self.folder / "home")

    def close(self):
        leftovers.end_processes()
        self.user.remove()
        # A mount there may contain the whole machine.
        mounts = pathlib.Path("/proc/self/mounts").read_text()
        for folder in (self.folder, self.binaries):
            if str(folder) not in mounts:
                shutil.rmtree(folder, ignore_errors=True)

    def fill(self, program, words, work):
        places = {
            "python": self.pythons[program.python],
            "scripts": SCRIPTS,
            "suite": HERE / "suite",
            "user": self.user.name,
            "built": self.built,
            "work": work,
        }
        return [re.sub(r"\{(\w+)\}", lambda match: str(places.get(match[1], match[0])), word) for word in words]

    @functools.cache
    def thresholds(self, python):
        """The setting that changes nothing there."""
        ask = "import gc; print(*gc.get_threshold(), sep=',')"
        asked = subprocess.run([self.pythons[python], "-c", ask], check=True, capture_output=True, text=True)
        return f"threshold={asked.stdout.strip()}"

    def readable(self):
        """Folders that the ordinary user must be able to read, wherever they are."""
        wanted = [HERE, *(CHECKOUT / name for name in (".venv-programs", ".venv-torch", ".interpreters"))]
        wanted += [pathlib.Path(os.path.realpath(python)).parent.parent for python in self.pythons.values()]
        return list(dict.fromkeys(str(path.resolve()) for path in wanted if path.exists() and path.resolve() != pathlib.Path("/usr")))


def environment(machine, program, work, truth, ordinary):
    values = {
        "PATH": f"{pathlib.Path(machine.pythons[program.python]).parent}:{PATH}",
        "HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": machine.user.name if ordinary else "root",
        "LOGNAME": machine.user.name if ordinary else "root",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if program.processes:
        values |= {"PYTHONPATH": str(TRUTH), "GCTRACE_TRUTH": str(truth)}
    return values | dict(program.environment)


def command_line(machine, program, mode, ordinary, work, trace):
    line = machine.fill(program, program.command, work)
    if mode == APPLY:
        setting = program.setting or ("--gc", machine.thresholds(program.python))
        line = [str(machine.gctrace), "apply", "-q", *setting, "--", *line]
    elif mode:
        line = [str(machine.gctrace), "record", "--mode", mode, "-o", str(trace), "--", *line]
    if program.terminal:
        # -I -S: it is not counted.
        line = [sys.executable, "-I", "-S", str(SCRIPTS / "in_terminal.py"), *line]
    if ordinary:
        line = [str(AS_USER), machine.user.name, *machine.readable(), "--", *line]
    return line


def run(machine, program, mode, ordinary):
    """One run. `mode` None: untraced."""
    where = machine.folder / f"{program.name}-{'user' if ordinary else 'root'}-{mode or 'untraced'}"
    work, truth, trace = where / "work", where / "truth", where / "work" / "trace.json"
    for folder in (work / "home", work / "tmp", truth):
        folder.mkdir(parents=True)
    truth.chmod(0o1777)
    if ordinary:
        for folder in (work, work / "home", work / "tmp"):
            os.chown(folder, machine.user.record.pw_uid, machine.user.record.pw_gid)
    else:
        work.chmod(0o777)
    links, start = leftovers.links(), time.monotonic()
    with open(where / "stdout", "wb") as stdout, open(where / "stderr", "wb") as stderr:
        child = subprocess.Popen(
            command_line(machine, program, mode, ordinary, work, trace),
            cwd=work,
            env=environment(machine, program, work, truth, ordinary),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        problems = []
        try:
            code = child.wait(program.limit)
        except subprocess.TimeoutExpired:
            problems.append(f"not done after {program.limit:.0f} s: {leftovers.describe(leftovers.descendants())}")
            leftovers.end_processes()
            code = None
            child.wait()
    seconds = time.monotonic() - start
    problems += filter(None, (code is not None and leftovers.left_processes(), leftovers.left_links(links)))
    output, (messages, own_words) = read(where / "stdout"), own_lines(read(where / "stderr"))
    if program.terminal:
        output, own_words = own_lines(output)
    try:
        results = program.results(work) if program.results else None
    except Exception as error:
        results = None
        problems.append(f"its results cannot be read: {error!r}")
    return Outcome(
        code=code if code is None or code >= 0 else 128 - code,
        stdout=normalized(program, output, work),
        stderr=normalized(program, messages, work),
        results=results,
        problems=problems,
        own_words=own_words,
        seconds=seconds,
        truth=truth,
        trace=trace if mode not in (None, APPLY) else None,
    )


def read(file):
    return file.read_text(errors="replace").replace("\r\n", "\n")


def own_lines(text):
    """The program's lines, and gctrace's."""
    lines = text.splitlines()
    own = [line for line in lines if line.startswith("gctrace: ")]
    return "\n".join(line for line in lines if line not in own), "\n".join(own)


def normalized(program, text, work):
    text = text.replace(str(work), "<work>")
    for pattern, replacement in program.normalize:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def default_mode_is_ordinary(program, mode):
    return mode in (INJECT, APPLY) and not program.root
