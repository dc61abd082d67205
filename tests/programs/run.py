#!/usr/bin/env python3
"""Runs real programs untraced and traced, and compares: output, exit code, results, counts,
reports.

    run.py [--short] [--mode MODE]... [--markdown FILE] [--list] [NAME...]

Needs root. Prints a line for each program and mode as it completes, then a table. Exit code 1 if
anything differed.
NAME may be a pattern (gunicorn*).
"""

import argparse
import dataclasses
import fnmatch
import importlib
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback

import counts
import execution
import leftovers
import program
import trace as traces

CATALOG = ("tools", "launchers", "pools", "servers", "embedded", "sandboxes", "pytorch", "cpython")


def catalog():
    return [one for name in CATALOG for one in importlib.import_module(f"catalog.{name}").PROGRAMS]


def pythons():
    """Names of pythons that programs use -> paths."""
    checkout = execution.CHECKOUT
    found = {"system": "/usr/bin/python3"}
    for name in ("programs", "torch"):
        path = checkout / f".venv-{name}/bin/python"
        if path.exists():
            found["venv" if name == "programs" else name] = str(path)
    manifest = checkout / ".interpreters/manifest.tsv"
    for line in manifest.read_text().splitlines() if manifest.exists() else []:
        name, version, _, path, _ = line.split("\t")
        if version != "-":
            found[name] = path
    return found


def why_not(one, machine):
    """Why a program cannot be run on this machine, or None."""
    path = machine.pythons.get(one.python)
    if path is None:
        return f"there is no python '{one.python}' (scripts/test/programs-venv.sh, torch-venv.sh, interpreters.sh)"
    for module in one.modules:
        if subprocess.run([path, "-c", f"import {module}"], capture_output=True).returncode != 0:
            return f"{path} has no module {module}"
    for tool in one.tools:
        if shutil.which(tool, path=f"{pathlib.Path(path).parent}:{execution.PATH}") is None:
            return f"{tool} is not installed"
    for words in one.build:
        words = machine.fill(one, words, machine.built)
        place = {"PATH": execution.PATH}
        done = subprocess.run(words, cwd=machine.built, env=place, capture_output=True, text=True)
        if done.returncode != 0:
            return f"the build failed: {done.stderr.strip().splitlines()[-1:]}"
    return None


def first_difference(untraced, traced):
    """The first line that differs, from both."""
    one, other = untraced.splitlines(), traced.splitlines()
    for a, b in zip(one, other):
        if a != b:
            return f"'{a[:200]}' untraced, '{b[:200]}' traced"
    longer, whose = (one, "untraced") if len(one) > len(other) else (other, "traced")
    return f"'{longer[min(len(one), len(other))][:200]}' only {whose}"


def behaves_alike(one, untraced, traced):
    """Sentences on differences from the untraced run."""
    said = list(traced.problems)
    if traced.code != untraced.code:
        said.append(f"exit code {traced.code} instead of {untraced.code}")
    streams = [("stdout", untraced.stdout, traced.stdout)]
    if one.stderr and not one.terminal:
        streams.append(("stderr", untraced.stderr, traced.stderr))
    said += [f"{name}: {first_difference(a, b)}" for name, a, b in streams if a != b]
    if traced.results != untraced.results:
        said.append(f"results: {traced.results} instead of {untraced.results}")
    return said


def reports(machine, traced):
    """gctrace's statements on completeness: its own last lines and the report."""
    done = subprocess.run(
        [machine.gctrace, "analyze", "--full", traced.trace], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    report = " ".join(done.stdout.split())
    return done, "Nothing was lost" in report, "nothing lost" in traced.own_words


def counts_alike(one, machine, mode, traced):
    """(sentence for the table, sentences on what is wrong)."""
    if not traced.trace.exists():
        return "no trace", [f"no trace: {traced.own_words[-300:]}"]
    trace = traces.read(traced.trace)
    compared = counts.compare(trace, traced.truth, from_start=mode == program.INJECT)
    done, report_says_all, summary_says_all = reports(machine, traced)
    wrong = list(compared.too_many)
    if done.returncode != 0:
        wrong.append(f"analyze: exit code {done.returncode}: {done.stderr[-200:]}")
    if not trace.ended:
        wrong.append("the trace has no end")
    if compared.processes < one.processes:
        wrong.append(f"{compared.processes} processes counted, not {one.processes}: {traced.truth} has too few files")
    if compared.missing:
        if report_says_all:
            wrong.append("the report contains 'Nothing was lost'")
        if summary_says_all:
            wrong.append("the summary contains 'nothing lost'")
        # A process that could not be stopped in time is late, and the trace reports it.
        if wrong or (compared.unsaid and mode not in one.unseen):
            wrong += compared.differences[:3]
            wrong.append(f"{compared.missing} of {compared.collections} collections missing")
        return f"{compared.collections - compared.missing} of {compared.collections}, reported", wrong
    early = f", {compared.early} before site unseen" if compared.early else ""
    return f"exact ({compared.collections:,} in {compared.processes}{early})", wrong


class Table:
    """The results so far."""

    def __init__(self):
        self.rows = {}
        self.counts = {"pass": 0, "FAIL": 0, "skipped": 0}

    def put(self, name, mode, result, words):
        self.counts[result] += 1
        self.rows.setdefault(name, {})[mode] = words if result == "pass" else result
        if result == "skipped":
            print(f"skipped {name}_{mode}: {words}", flush=True)
        else:
            print(f"{result} {name} {mode}: {words}", flush=True)

    def lines(self):
        yield "| program | " + " | ".join(program.MODES) + " |"
        yield "|---" * (1 + len(program.MODES)) + "|"
        for name, row in self.rows.items():
            yield "| " + " | ".join([name, *(row.get(mode, "-") for mode in program.MODES)]) + " |"

    def closing(self):
        return "{pass} passed, {FAIL} failed, {skipped} skipped".format(**self.counts)


def run_program(one, machine, modes, table):
    reason = why_not(one, machine)
    untraced = {}
    for mode in modes if not one.setting else [mode for mode in modes if mode == program.APPLY]:
        if why := reason or one.why_excluded(mode):
            table.put(one.name, mode, "skipped", why)
            continue
        ordinary = execution.default_mode_is_ordinary(one, mode)
        if ordinary not in untraced:
            untraced[ordinary] = execution.run(machine, one, None, ordinary)
        base = untraced[ordinary]
        if base.code != one.code or base.problems:
            last = (base.stderr.strip() or base.stdout.strip())[-300:]
            table.put(one.name, mode, "FAIL", f"untraced: exit code {base.code}; {base.problems} {last}")
            continue
        traced = execution.run(machine, one, mode, ordinary)
        wrong, words = behaves_alike(one, base, traced), "same"
        if one.processes and traced.trace:
            exact, more = counts_alike(one, machine, mode, traced)
            words, wrong = f"same, {exact}", wrong + more
        if wrong:
            table.put(one.name, mode, "FAIL", "; ".join(wrong))
        else:
            table.put(one.name, mode, "pass", f"{words} [{base.seconds:.1f} s, {traced.seconds:.1f} s]")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--short", action="store_true", help="only those of the short form")
    parser.add_argument("--mode", action="append", choices=program.MODES, help="default: all")
    parser.add_argument("--gctrace", type=pathlib.Path, default=execution.CHECKOUT / "target/debug/gctrace")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table to this file")
    parser.add_argument("--list", action="store_true", help="print names only")
    parser.add_argument("--limit", type=float, help="seconds for each run, instead of the program's own limit")
    parser.add_argument("--keep", action="store_true", help="keep traces and outputs of the runs")
    arguments = parser.parse_args()
    chosen = [one for one in catalog() if one.short or not arguments.short]
    if arguments.names:
        chosen = [one for one in chosen if any(fnmatch.fnmatch(one.name, name) for name in arguments.names)]
    if arguments.limit:
        chosen = [dataclasses.replace(one, limit=arguments.limit) for one in chosen]
    if arguments.list:
        print("\n".join(one.name for one in chosen))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    leftovers.adopt_orphans()
    machine, table, start = execution.Machine(arguments.gctrace.resolve(), pythons()), Table(), time.monotonic()
    try:
        for one in chosen:
            try:
                run_program(one, machine, arguments.mode or program.MODES, table)
            except Exception as error:  # a failing program must not stop the others
                leftovers.end_processes()
                traceback.print_exc()
                table.put(one.name, "driver", "FAIL", repr(error))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if arguments.keep:
            print(f"kept: {machine.folder}, {machine.binaries}")
            machine.user.remove()
        else:
            machine.close()
    lines = list(table.lines())
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")
    print("\n".join(["", *lines, "", f"{time.monotonic() - start:.0f} s", table.closing()]))
    return 1 if table.counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
