"""Checks the tables of `gctrace export --format parquet` against what is true.

    tables_truth.py GCTRACE CHECKOUT

Truth comes from a simulated job (tables_job.py), from the JSON of the traces as Python's json reads
it, and from `gctrace analyze --format json`. Tables are read by DuckDB and pyarrow, and where they are
installed by polars, pandas and DataFusion, which must agree. The queries of docs/tasks/sql.md are run, too. Prints what was compared;
any difference is an AssertionError.
"""

import collections
import decimal
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import duckdb
import pyarrow.compute
import pyarrow.parquet

try:
    import datafusion
    import pandas
    import polars

    ENGINES = (duckdb, pyarrow, polars, pandas, datafusion)
except ModuleNotFoundError:
    datafusion = None
    ENGINES = (duckdb, pyarrow)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tables_job

TABLES = "ranks pauses gpu_ops calls collectives steps frames annotations garbage layers".split()
# Sums of Unix time in ns overflow: starts are summed modulo a prime.
PRIME = 1_000_003
KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def gctrace(*arguments, code=0):
    done = subprocess.run([GCTRACE, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done.stdout


def export(traces, folder, *options, code=0):
    gctrace("export", "--format", "parquet", *traces, "-o", folder, *options, code=code)
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{table}.parquet" for table in TABLES)
    return folder


def events(path):
    """Events of a trace with start and end in ns, exactly."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    trace = json.loads(data, parse_float=decimal.Decimal)
    for event in trace["traceEvents"]:
        if event.get("ph") == "X":
            start = round(decimal.Decimal(event["ts"]) * 1000)
            yield event, start, start + round(decimal.Decimal(event["dur"]) * 1000)


def recorded(path):
    """Rows, sum of lengths and sum of starts by table, as Python counts them."""
    sums = collections.defaultdict(lambda: [0, 0, 0])

    def add(table, start, end):
        for index, value in enumerate((1, end - start, start % PRIME)):
            sums[table][index] += value

    threads = collections.defaultdict(list)
    for event, start, end in events(path):
        category = event.get("cat")
        if category == "gc" or event["name"] == "Python GC":
            add("pauses", start, end)
        elif category in KINDS:
            add("gpu_ops", start, end)
            add(KINDS[category], start, end)
        elif category in ("cuda_runtime", "cuda_driver", "nccl"):
            threads[event["pid"], event["tid"]].append((start, -end))
        elif category == "user_annotation":
            is_step = re.fullmatch(r"ProfilerStep#\d+", event["name"])
            add("steps" if is_step else "annotations", start, end)
    for calls in threads.values():
        last = None
        for start, end in sorted(calls):
            if last is None or -end > last:
                add("calls", start, -end)
                last = -end
    return {table: tuple(values) for table, values in sums.items()}


def read_by_all(folder, table):
    """Rows, sum of lengths and of starts, by each engine, which must agree."""
    path = str(folder / f"{table}.parquet")
    query = f"select count(*), coalesce(sum(dur_ns), 0), coalesce(sum(ts_ns % {PRIME}), 0) from "
    read = duckdb.sql(query + f"'{path}'").fetchall()
    columns = pyarrow.parquet.read_table(path, columns=["ts_ns", "dur_ns"])
    starts = sum(start % PRIME for start in columns["ts_ns"].to_pylist())
    read.append((len(columns), pyarrow.compute.sum(columns["dur_ns"], min_count=0).as_py(), starts))
    if datafusion in ENGINES:
        context = datafusion.SessionContext()
        context.register_parquet("one", path)
        read += context.sql(query + "one").to_pandas().itertuples(index=False, name=None)
        lazy = polars.scan_parquet(path).select(polars.len(), polars.col("dur_ns").sum(), (polars.col("ts_ns") % PRIME).sum())
        read.append(lazy.collect().row(0))
        frame = pandas.read_parquet(path)
        read.append((len(frame), frame["dur_ns"].sum(), (frame["ts_ns"] % PRIME).sum()))
    found = {tuple(map(int, one)) for one in read}
    assert len(read) == len(ENGINES) and len(found) == 1, (table, read)
    return found.pop()


def rows(folder, query):
    """The rows of a query of DuckDB in a folder with tables, as dictionaries."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.sql(f"create view {table} as from '{folder}/{table}.parquet'")
        found = connection.sql(query)
        return [dict(zip(found.columns, row)) for row in found.fetchall()]


def check_types(folder):
    """All numbers are int64, times are never null, and rows are sorted within each row group."""
    for table in TABLES:
        file = pyarrow.parquet.ParquetFile(folder / f"{table}.parquet")
        assert file.metadata.metadata[b"format"] == b"gctrace.tables/1", table
        for field in file.schema_arrow:
            kind = str(field.type)
            assert kind in ("int64", "string", "bool"), (table, field)
            assert not field.name.endswith("_ns") or kind == "int64", (table, field)
            assert field.name != "ts_ns" or not field.nullable, (table, field)
        for group in range(file.num_row_groups):
            if "ts_ns" in file.schema_arrow.names:
                columns = file.read_row_group(group, ["trace", "ts_ns"])
                keys = list(zip(*(columns[name].to_pylist() for name in ("trace", "ts_ns"))))
                assert keys == sorted(keys), (table, group)
            chunk = file.metadata.row_group(group).column(file.schema_arrow.names.index("trace"))
            assert chunk.compression == "ZSTD", table
        names = file.schema_arrow.names
        if "ts_ns" in names and file.num_row_groups:
            chunk = file.metadata.row_group(0).column(names.index("ts_ns"))
            assert "DELTA_BINARY_PACKED" in chunk.encodings, chunk.encodings


def check_sums(traces, folder):
    """Rows and sums of each table are those of the JSON."""
    truth = [recorded(path) for path in traces]
    compared = 0
    for table in ("pauses", "gpu_ops", "steps", "annotations", "calls"):
        expected = tuple(map(sum, zip(*(one.get(table, (0, 0, 0)) for one in truth))))
        found = read_by_all(folder, table)
        if table == "pauses":
            # A pause without the time of examining its garbage, and of what it called.
            apart = "select coalesce(sum(examining_ns + called_ns), 0) as ns from pauses"
            [apart] = rows(folder, apart)
            found = (found[0], found[1] + int(apart["ns"]), found[2])
        assert found == expected, (table, found, expected)
        compared += expected[0]
    for kind in KINDS.values():
        found = rows(folder, f"select count(*) n, coalesce(sum(dur_ns), 0)::bigint as ns from gpu_ops where kind = '{kind}'")
        expected = tuple(map(sum, zip(*(one.get(kind, (0, 0, 0)) for one in truth))))
        assert (found[0]["n"], found[0]["ns"]) == expected[:2], (kind, found, expected)
    assert compared, traces
    return compared


def check_report(traces, folder, code=0):
    """Figures that the report has as well."""
    report = json.loads(gctrace("analyze", "--format", "json", *traces, code=code))
    [pauses] = rows(folder, "select count(*) n, coalesce(sum(dur_ns), 0)::bigint ns, sum(collected)::bigint freed from pauses")
    totals = report["totals"]["pauses"]
    assert (pauses["n"], pauses["ns"]) == (totals["count"], totals["time_ns"]), (pauses, totals)
    [work] = rows(folder, "select count(*) n from gpu_ops")
    assert work["n"] == (report.get("gpu") or {"operations": 0})["operations"]
    for process in report["processes"]:
        own = "trace = {trace} and pid = {pid}".format(**process)
        [row] = rows(folder, f"select * from ranks where {own}")
        assert (row["rank"], row["pauses"]) == (process["rank"], process["pauses"]["count"]), (row, process)
        assert row["paused_ns"] == process["pauses"]["time_ns"]
    work = report.get("gpu") or {}
    jobs = (work.get("ranks") or {"jobs": []})["jobs"]
    for number, job in enumerate(jobs):
        for rank in job["ranks"]:
            own = "trace = {trace} and pid = {pid}".format(**rank)
            [row] = rows(folder, f"select * from ranks where {own}")
            for name in ("rank", "clock_offset_ns", "clock_error_ns", "clock_collectives", "clock_ambiguous"):
                assert row[name] == rank[name], (name, row, rank)
            [met] = rows(
                folder,
                "select count(*) n, sum(wait_ns)::bigint wait_ns, sum(is_last::int)::bigint last "
                f"from collectives where job = {number} and {own}",
            )
            expected = (rank["collectives"], rank["peer_wait_ns"], rank["last"])
            assert (met["n"], met["wait_ns"] or 0, met["last"] or 0) == expected, (met, rank)
    return len(jobs)


def check_truth(truth, folder):
    """Clocks, and which rank was last: by the simulated truth; by raw times it is another."""
    ranks = rows(folder, "select rank, clock_offset_ns from ranks order by rank")
    for row in ranks:
        error = abs(row["clock_offset_ns"] - truth["offsets_ns"][row["rank"]])
        assert error < 5_000, (row, error)
    last = {row["seq"]: row["rank"] for row in rows(folder, "select seq, rank from collectives where is_last")}
    clear = {one["seq"]: one["rank"] for one in truth["lasts"] if one["lead_ns"] > 20_000}
    assert len(clear) >= 0.8 * len(truth["lasts"]) and len(set(clear.values())) > 1
    assert {seq: last.get(seq) for seq in clear} == clear
    raw = rows(folder, "select seq, max_by(rank, ts_ns) as rank from collectives group by seq")
    wrong = sum(row["rank"] != clear.get(row["seq"], row["rank"]) for row in raw)
    assert wrong > len(clear) / 2, "the clocks of the simulated job are too close to show anything"
    return len(clear), wrong


def check_queries(folder, traces):
    """Every query of the documentation has an answer, in DuckDB and, as far as it can, DataFusion."""
    blocks = re.findall(r"^```sql\n(.*?)^```", (CHECKOUT / "docs/tasks/sql.md").read_text(), re.S | re.M)
    views = [block for block in blocks if block.startswith("create view")]
    queries = [block for block in blocks if not block.startswith("create view")]
    assert len(views) == 1 and len(queries) >= 10, len(queries)
    os.chdir(folder)
    whole = [folder / f"whole-{trace.name}" for trace in traces]
    for trace, copy in zip(traces, whole):
        copy.write_bytes(trace.read_bytes())
    traces[-1].write_bytes(traces[-1].read_bytes()[:-2_000])
    export(traces, folder / "tables")
    for day, ranks in ((16, whole[:1]), (17, whole)):
        for rank, trace in enumerate(ranks):
            export([trace], folder / f"runs/day=2026-11-{day}/rank={rank}")
    connection = duckdb.connect()
    connection.sql(views[0])
    context = datafusion.SessionContext() if datafusion in ENGINES else None
    for table in TABLES if context else ():
        context.register_parquet(table, f"tables/{table}.parquet")
    longest = rows(folder / "job", queries[0])
    lengths = [end - start for trace in whole for event, start, end in events(trace) if event.get("cat") == "gc"]
    # The longest are full collections, whose garbage the job examines for that long.
    expected = [length - tables_job.EXAMINING for length in sorted(lengths, reverse=True)[:10]]
    assert [round(row["ms"] * 1e6) for row in longest] == expected, (longest, expected)
    answers = {}
    for query in queries:
        found = connection.sql(query)
        answers[query] = [dict(zip(found.columns, row)) for row in found.fetchall()]
        assert answers[query], query
        if context and "read_parquet" not in query:
            table = context.sql(query.strip().rstrip(";")).to_pandas()
            assert len(table) == len(answers[query]), query
    [cut] = next(answer for query, answer in answers.items() if "incomplete_because" in query)
    assert cut["rank"] == len(traces) - 1 and "cut off" in cut["incomplete_because"], cut
    check_days(folder, next(answer for query, answer in answers.items() if "hive_partitioning" in query))
    return len(queries)


def check_days(folder, lines):
    """Tables by day and rank have the pauses of all ranks at once, in DuckDB (lines), polars and DataFusion."""
    counts = {row["rank"]: row["n"] for row in rows(folder / "job", "select rank, count(*) n from pauses group by rank")}
    expected = {("2026-11-16", 0): counts[0], **{("2026-11-17", rank): count for rank, count in counts.items()}}

    def found(answer):
        pauses = collections.Counter()
        for row in answer:
            pauses[str(row["day"]), row["rank"]] += row["pauses"]
        return pauses

    assert len(counts) > 1 and found(lines) == expected, (lines, expected)
    if datafusion in ENGINES:
        [example] = re.findall(r"^```python\n(.*?)^```", (CHECKOUT / "docs/tasks/sql.md").read_text(), re.S | re.M)
        printed = []
        exec(example, {"polars": polars, "print": printed.append})
        by_line = {tuple(row.values()) for row in printed[0].with_columns(polars.col("day").cast(str)).to_dicts()}
        assert by_line == {(str(row["day"]), *list(row.values())[1:]) for row in lines}, (printed[0], lines)
        context = datafusion.SessionContext()
        days = [("day", pyarrow.string())]
        context.register_parquet("pauses", "runs/", table_partition_cols=days, file_extension="pauses.parquet")
        query = "select day, rank, count(*) as pauses from pauses group by day, rank"
        assert found(context.sql(query).to_pylist()) == expected


def check_files(folder, traces):
    """Nothing is overwritten that is not a table of gctrace, and only on request."""
    tables = export(traces, folder / "again")
    before = (tables / "pauses.parquet").read_bytes()
    gctrace("export", "--format", "parquet", *traces[:1], "-o", tables, code=1)
    assert (tables / "pauses.parquet").read_bytes() == before
    export(traces[:1], tables, "--force")
    assert (tables / "pauses.parquet").read_bytes() != before
    (tables / "pauses.parquet").write_bytes(b"PAR1 of another program PAR1")
    gctrace("export", "--format", "parquet", *traces, "-o", tables, "--force", code=1)
    assert (tables / "pauses.parquet").read_bytes() == b"PAR1 of another program PAR1"
    # An unreadable trace among others: the tables have the others, and the exit code is 1.
    none = folder / "none.json"
    none.write_text("nothing")
    export([traces[0], none], folder / "partly", code=1)
    gctrace("export", "--format", "parquet", none, "-o", folder / "nothing", code=1)
    assert list((folder / "nothing").iterdir()) == []


def main():
    print("read by", *(f"{one.__name__} {one.__version__}" for one in ENGINES))
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        traces, truth = tables_job.write(folder)
        tables = export(traces, folder / "job")
        check_types(tables)
        print("simulated job:", check_sums(traces, tables), "rows as in the JSON")
        assert check_report(traces, tables) == 1
        print("last in collectives: %d of %d as simulated; %d wrong by raw times" % (*[check_truth(truth, tables)[0]] * 2, check_truth(truth, tables)[1]))
        kineto = sorted((CHECKOUT / "analysis/tests/data/kineto").glob("*_rank*.json.gz"))
        assert kineto
        for trace in kineto:
            tables = export([trace], folder / trace.stem)
            check_types(tables)
            check_report([trace], tables)
            print(f"{trace.name}: {check_sums([trace], tables)} rows as in the JSON")
        pair = [trace for trace in kineto if trace.name.startswith("sampled")]
        tables = export(pair, folder / "pair")
        check_types(tables)
        # The other 126 ranks are missing.
        assert check_report(pair, tables, code=1) == 1, "the two ranks are of one job"
        print("sampled_rank0, 1: clocks and waits as in the report")
        check_files(folder, traces)
        print("docs/tasks/sql.md:", check_queries(folder, traces), "queries answered")


if __name__ == "__main__":
    GCTRACE, CHECKOUT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    main()
