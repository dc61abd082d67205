#!/usr/bin/env python3
"""Sizes of exported tables, and times of queries: docs/evidence.md, "Reports, summaries, tables".

    scripts/venv.sh tables && .venv-tables/bin/python scripts/bench/tables.py GCTRACE [RANKS [STEPS]]

Traces: the real ones of analysis/tests/data/kineto, and a job simulated by tests/python/tables_job.py.
Queries are those of docs/tasks/sql.md, each run five times in one thread on the simulated job; stated
is the smallest CPU time. Not checked here: that the answers are right (tests/python/tables_truth.py).
"""

import gzip
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import datafusion
import duckdb

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests/python"))
import tables_job


def kb(size):
    return f"{size / 1000:,.0f} kB"


def sizes(name, gctrace, traces, folder):
    plain = [gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in traces]
    # Level 6 is gzip's default.
    compressed = sum(len(gzip.compress(text, 6)) for text in plain)
    subprocess.run([gctrace, "export", "--format", "parquet", *traces, "-o", folder], check=True)
    tables = sum(path.stat().st_size for path in folder.iterdir())
    print(f"| {name} | {kb(sum(map(len, plain)))} | {kb(compressed)} | {kb(tables)} | {compressed / tables:.1f} |")


def cpu(run):
    times = []
    for _ in range(5):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def queries(folder):
    document = (CHECKOUT / "docs/tasks/sql.md").read_text()
    connection = duckdb.connect(config={"threads": 1})
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    for path in folder.iterdir():
        connection.sql(f"create view {path.stem} as from '{path}'")
        context.register_parquet(path.stem, str(path))
    for question, query in re.findall(r"([^\n]+)\n\n```sql\n(select.*?);\n```", document, re.S):
        if "read_parquet" not in query:
            times = cpu(lambda: connection.sql(query).fetchall()), cpu(lambda: context.sql(query).collect())
            print(f"| {question} | " + " | ".join(f"{1000 * one:.0f} ms" for one in times) + " |")


def main(gctrace, ranks=32, steps=300):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        print("| trace | json | json.gz | tables | gz / tables |\n|---|---|---|---|---|")
        for path in sorted((CHECKOUT / "analysis/tests/data/kineto").glob("*_rank*.json.gz")):
            sizes(f"`{path.name.split('.')[0]}`", gctrace, [path], folder / path.stem)
        traces, _ = tables_job.write(folder, int(ranks), int(steps))
        sizes(f"simulated, {ranks} ranks, {steps} steps", gctrace, traces, folder / "job")
        print("\n| query | DuckDB | DataFusion |\n|---|---|---|")
        queries(folder / "job")


if __name__ == "__main__":
    main(*sys.argv[1:])
