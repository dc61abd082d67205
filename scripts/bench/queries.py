#!/usr/bin/env python3
"""Times of queries on a job of ranks: gctrace-cluster on tables, summaries and traces, DuckDB on the
tables. Part of docs/measurements/analysis.md, "gctrace-cluster".

    scripts/venv.sh tables && .venv-tables/bin/python scripts/bench/queries.py --gctrace GCTRACE
        --cluster GCTRACE_CLUSTER [--ranks 128] [--steps 20 --collectives 15 --kernels 30]

Profiles are those of generate_ranks.py; queries are three of docs/tasks/sql.md. Stated are CPU seconds
(user and system) and wall seconds of whole processes, the smallest of three: each starts, reads and
prints. DuckDB is Python's, with as many threads as there are processors, as DataFusion. All four answers
must be equal.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
QUESTIONS = (
    "Which rank is paused most?",
    "Which rank do the others wait for?",
    "Where do the GPUs spend their time, and how fast are copies?",
)
# A process like `duckdb -json -c QUERY`, with the tables of a folder.
DUCKDB = """
import duckdb, json, pathlib, sys
for path in pathlib.Path(sys.argv[2]).iterdir():
    duckdb.sql(f"create view {path.stem} as from '{path}'")
found = duckdb.sql(sys.argv[1])
rows = [dict(zip(found.columns, row)) for row in found.fetchall()]
print(json.dumps([{name: value for name, value in row.items() if value is not None} for row in rows], default=float))
"""


def run(command):
    """Output, CPU seconds and wall seconds of a command."""
    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - began
        if status:
            sys.exit(f"{' '.join(map(str, command[:3]))} ...: wait status {status}")
        out.seek(0)
        return out.read(), used.ru_utime + used.ru_stime, wall


def answer(text):
    """Rows in any order, their numbers to six digits."""
    row = lambda row: {name: float(f"{value:.6g}") if isinstance(value, (int, float)) else value for name, value in row.items()}
    return sorted(json.dumps(row(one), sort_keys=True) for one in json.loads(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--cluster", required=True, type=pathlib.Path)
    for name, usual in (("ranks", 128), ("steps", 20), ("collectives", 15), ("kernels", 30)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    gctrace, cluster = options.gctrace.resolve(), options.cluster.resolve()
    sizes = [f"--{name}={getattr(options, name)}" for name in ("ranks", "steps", "collectives", "kernels")]
    document = (CHECKOUT / "docs/tasks/sql.md").read_text()
    queries = dict(re.findall(r"([^\n]+)\n\n```sql\n(select.*?);\n```", document, re.S))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        traces, tables, summaries = (folder / name for name in ("traces", "tables", "summaries"))
        subprocess.run([sys.executable, CHECKOUT / "scripts/bench/generate_ranks.py", traces, *sizes], check=True)
        files = sorted(traces.iterdir())
        _, cpu, wall = run([gctrace, "export", "--format", "parquet", *files, "-o", tables])
        print(f"tables of the traces: {cpu:.2f} CPU s, {wall:.2f} s")
        run([gctrace, "summarize", *files, "-o", summaries])
        for name in (traces, tables, summaries):
            print(f"{name.name}: {sum(path.stat().st_size for path in name.iterdir()) / 1e6:.1f} MB")
        print("\n| query | tables, DuckDB: CPU s | s | tables: CPU s | s | summaries: CPU s | s | traces: CPU s | s |")
        print("|---|" + "---:|" * 8)
        for question in QUESTIONS:
            query, expected, figures = queries[question], None, []
            for inputs in (None, tables, summaries, traces):
                if inputs is None:
                    command = [sys.executable, "-c", DUCKDB, query, tables]
                else:
                    command = [cluster, "--gctrace", gctrace, "query", "--format", "json", query, inputs]
                runs = [run(command) for _ in range(3)]
                found = answer(runs[0][0])
                expected = expected or found
                if not found or found != expected:
                    sys.exit(f"{question}\n{inputs}: {found[:3]} is not {expected[:3]}")
                figures += [f"{min(one[at] for one in runs):.2f}" for at in (1, 2)]
            print(f"| {question} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
