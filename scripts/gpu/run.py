#!/usr/bin/env python3
"""Tests gctrace on a real GPU: runs each part with its own time limit and result.

    run.py [--out FOLDER] [PART...]

FOLDER gets `table.md` (for docs/evidence.md), `log.txt`, `results.json` and `fixtures.tar.gz`
(traces small enough to keep). They are rewritten after every part, so that an interrupted run
leaves what it has. A part is a module in parts/ with `LIMIT_S` and `run(bench)`, which returns a
list of tables; it raises `Skip` with the reason if it cannot run.

Exit code: 0 if every part ran or was skipped, 1 if one failed, differed or ran out of time.
"""

import argparse
import ctypes
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from bench import Bench, Skip, as_markdown, device  # noqa: E402

# In order of value: the time limit cuts off the last ones.
PARTS = ("facts", "inject", "predicted", "breakdown", "probes", "watching", "rate", "cost", "variants", "demo")
# Time for everything: ten minutes of a machine are enough.
TOTAL_S = 530
# Size of all fixtures together.
FIXTURE_BYTES = 4 << 20
PR_SET_CHILD_SUBREAPER = 36


def child(name, out):
    """A part, in its own process: writes its result and exits."""
    result = {"part": name}
    try:
        tables = importlib.import_module(f"parts.{name}").run(Bench(out, name))
        differs = [row for table in tables for row in table["rows"] if str(row[-1]).startswith("differs")]
        result |= {"status": "differs" if differs else "ok", "tables": tables}
    except Skip as reason:
        result |= {"status": "skipped", "reason": str(reason)}
    except BaseException as error:
        traceback.print_exc()
        result |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    (out / f"{name}.result.json").write_text(json.dumps(result))


def descendants(pid):
    """Processes below `pid`; gctrace's guardian is in its own session, so killing a group is not
    enough."""
    children = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end_everything():
    """Resumes and kills the processes that a part left behind."""
    for _ in range(50):
        left = descendants(os.getpid())
        for pid in left:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.1)


def run_part(name, work, limit_s, log):
    """Runs a part within its limit; returns its result."""
    began = time.monotonic()
    command = [sys.executable, str(HERE / "run.py"), "--child", name, "--out", str(work)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        process.wait(limit_s)
        reason = f"ended with {process.returncode} and left no result"
    except subprocess.TimeoutExpired:
        reason = f"not done within {limit_s:.0f} s"
    end_everything()
    result = {"part": name, "status": "failed", "reason": reason}
    path = work / f"{name}.result.json"
    if path.exists():
        result = json.loads(path.read_text())
    return result | {"seconds": round(time.monotonic() - began, 1)}


def write_table(results, out):
    lines = ["| part | result | seconds | |", "|---|---|---|---|"]
    for result in results:
        lines.append(f"| {result['part']} | {result['status']} | {result['seconds']} | {result.get('reason', '')} |")
    for result in results:
        lines += [as_markdown(table) for table in result.get("tables", [])]
    (out / "table.md").write_text("\n".join(lines) + "\n")


def write_fixtures(work, out):
    """The smallest traces first, as many as fit."""
    traces = sorted(work.glob("fixture-*"), key=lambda path: path.stat().st_size)
    total = 0
    with tarfile.open(out / "fixtures.tar.gz", "w:gz", compresslevel=1) as archive:
        for path in traces:
            total += path.stat().st_size
            if total > FIXTURE_BYTES:
                print(f"gpu: {path.name} is not kept: all fixtures together may have {FIXTURE_BYTES} bytes")
                break
            archive.add(path, path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: " + " ".join(PARTS))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-results"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.out)
    parts = options.parts or PARTS
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    # Orphaned children come to this process, which ends them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Time on a GPU is short. Without one, nothing is measured and the machine may be busy.
    times = 1 if device() == "cuda" else 5
    deadline = time.monotonic() + TOTAL_S * times
    results = []
    with tempfile.TemporaryDirectory(prefix="gctrace-gpu-") as work, open(out / "log.txt", "w") as log:
        work = pathlib.Path(work)
        for name in parts:
            try:
                limit_s = importlib.import_module(f"parts.{name}").LIMIT_S * times
            except ModuleNotFoundError:
                sys.exit(f"gpu: there is no part {name!r}; parts are: {', '.join(PARTS)}")
            limit_s = min(limit_s, deadline - time.monotonic())
            print(f"== {name}", file=log, flush=True)
            if limit_s < 5:
                result = {"part": name, "status": "skipped", "reason": "no time left", "seconds": 0}
            else:
                result = run_part(name, work, limit_s, log)
            results.append(result)
            print(f"gpu: {name}: {result['status']} in {result['seconds']} s {result.get('reason', '')}", flush=True)
            (out / "results.json").write_text(json.dumps(results, indent=1))
            write_table(results, out)
        write_fixtures(work, out)
    return 0 if all(result["status"] in ("ok", "skipped") for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
