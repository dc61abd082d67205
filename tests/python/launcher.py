"""A launcher of many processes, like torchrun: interpreters of several versions, started in every
possible way.

    launcher.py FOLDER PYTHON...

FOLDER/ROLE-PID.json is the truth of each process:
  launcher            this one
  exec                each PYTHON, by fork and exec of the same process
  spawn               each PYTHON, by subprocess, with RANK and LOCAL_RANK set
  grandchild          started by every `spawn`
  shell               the first PYTHON, by `sh -c` and env
  forked, spawned     workers of multiprocessing
Every truth has at least two automatic and three manual collections.
"""

import multiprocessing
import os
import subprocess
import sys
import time

from recorder import Recorder
from recorder import collect
from recorder import garbage

ROLES = ("exec", "spawn", "grandchild", "shell")


def work(recorder, folder, role, rank=None):
    """Some collections of each kind, then the truth."""
    garbage(10_000)
    for generation in range(3):
        garbage(10)
        collect(generation)
    recorder.finish(os.path.join(folder, "%s-%d.json" % (role, os.getpid())), role=role, rank=rank)


def worker(folder, role):
    """Entry point of multiprocessing's workers."""
    recorder = Recorder().install()
    if role == "forked":
        recorder.run("worker", lambda: None)
    work(recorder, folder, role)


def command(python, folder, role):
    return [python, os.path.abspath(__file__), "--role", role, folder]


def run_role(role, folder):
    recorder = Recorder().install()
    if role == "spawn":
        subprocess.check_call(command(sys.executable, folder, "grandchild"))
    work(recorder, folder, role, os.environ.get("RANK"))
    if role == "spawn":
        time.sleep(4)  # its environment, and so its rank, can be read only while it is alive


def launch(folder, pythons):
    children = []
    for python in pythons:
        pid = os.fork()
        if not pid:
            os.execv(python, command(python, folder, "exec"))
        children.append(pid)
    spawned = [
        subprocess.Popen(command(python, folder, "spawn"),
                         env=dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank)))
        for rank, python in enumerate(pythons)
    ]
    shell = " ".join(["exec", "env", "GREETING=hello"] + command(pythons[0], folder, "shell"))
    spawned.append(subprocess.Popen(["sh", "-c", shell]))
    workers = [
        multiprocessing.get_context(method).Process(target=worker, args=(folder, role))
        for method, role in (("fork", "forked"), ("spawn", "spawned")) for _ in range(2)
    ]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    failed = [process.exitcode for process in workers if process.exitcode]
    failed += [status for status in (os.waitpid(pid, 0)[1] for pid in children) if status]
    failed += [process.args for process in spawned if process.wait()]
    return failed


def main():
    if sys.argv[1] == "--role":
        return run_role(*sys.argv[2:])
    folder, pythons = sys.argv[1], sys.argv[2:] or [sys.executable]
    os.makedirs(folder, exist_ok=True)
    recorder = Recorder().install()
    failed = launch(folder, pythons)
    work(recorder, folder, "launcher")
    if failed:
        sys.exit("failed: %r" % failed)


if __name__ == "__main__":
    main()
