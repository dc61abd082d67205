#!/usr/bin/env python3
"""Which way to take for the traces of many ranks: docs/evidence.md, "Reports, summaries, tables".

    scripts/venv.sh ray && scripts/venv.sh tables &&
        python3 scripts/bench/ways.py --gctrace target/release/gctrace [--ranks 8 64 256]

Profiles are those of generate_ranks.py. Reports: `gctrace analyze` of the traces; `gctrace summarize` and `gctrace
analyze` of the summaries; gctrace.on_ray on a Ray of this machine, from files and from an S3 server on loopback (moto),
which take their report from the summaries, too. All four reports must be equal but for the names of traces. SQL: tables of
all ranks at once, of their summaries, and of each rank alone (day=D/rank=N), and a query of DuckDB and of polars on the
former and the latter, whose answers must be equal. Stated are CPU seconds (user and system; with Ray those of all its
processes, without the server), wall seconds, and where one process does it all its largest memory.
"""

import argparse
import ctypes
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
PAUSES = "select rank, count(*) as pauses, sum(dur_ns) / 1e6 as ms from {} group by rank order by rank"
DUCKDB = """
import duckdb, json, sys
query, tables = sys.argv[1:]
print(json.dumps(duckdb.sql(query.format(f"read_parquet('{tables}/pauses.parquet', hive_partitioning = true)")).fetchall(), default=float))
"""
POLARS = """
import json, polars, sys
pauses = polars.scan_parquet(sys.argv[2] + "/pauses.parquet", hive_partitioning=True).group_by("rank")
print(json.dumps(pauses.agg(pauses=polars.len(), ms=polars.col("dur_ns").sum() / 1e6).sort("rank").collect().rows()))
"""
SERVER = """
import moto.server, s3fs, sys
server = moto.server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
address = "http://127.0.0.1:{}".format(server.get_host_and_port()[1])
files = s3fs.S3FileSystem(endpoint_url=address)
files.mkdir("bucket")
files.put(sys.argv[1] + "/", "bucket/traces", recursive=True)
print(address, flush=True)
sys.stdin.read()
"""


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command, output=os.devnull, but=None, **variables):
    """CPU and wall seconds of a command and of all that it leaves behind, and its memory in MB. `but`: another child."""
    began, before = time.monotonic(), cpu_s()
    with open(output, "wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, env={**os.environ, **variables})
    messages = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    wall = time.monotonic() - began
    if status:
        sys.exit(f"{' '.join(map(str, command[:4]))} ...: wait status {status}: {messages.decode()}")
    own = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while set(own.read_text().split()) - {str(but)}:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.01)
    return cpu_s() - before, wall, used.ru_maxrss / 1000


def row(way, ranks, figures, memory=True):
    cpu, wall, megabytes = figures
    print(f"| {ranks:,} | {way} | {cpu:.1f} | {wall:.1f} | {f'{megabytes:.0f}' if memory else ''} |", flush=True)


def added(*several):
    return sum(one[0] for one in several), sum(one[1] for one in several), max(one[2] for one in several)


def reports(options, ranks, folder, traces):
    report = ["analyze", "--format", "json"]
    row("`analyze` of the traces", ranks, run([options.gctrace, *report, *traces], folder / "whole"))
    made = run([options.gctrace, "summarize", *traces, "-o", folder / "summaries"])
    row("`summarize`, then `analyze`", ranks, added(made, run([options.gctrace, *report, folder / "summaries"], folder / "from")))
    variables = {"GCTRACE_PROGRAM": options.gctrace, "PYTHONPATH": CHECKOUT / "packaging/python/src", "RAY_USAGE_STATS_ENABLED": "0"}
    driver = [options.ray, "-m", "gctrace.on_ray"]
    on_files = [*driver, folder / "on-ray", *traces, "--", "--format", "json"]
    row("`gctrace.on_ray`, files", ranks, run(on_files, folder / "of-ray", **variables), memory=False)
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "of moto") | {"AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1"}
    server = subprocess.Popen([options.ray, "-c", SERVER, folder / "traces"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env={**os.environ, **keys}, text=True)
    keys["AWS_ENDPOINT_URL"] = server.stdout.readline().strip()
    in_bucket = [*driver, "s3://bucket/summaries", "s3://bucket/traces/*.json", "--", "--format", "json"]
    row("`gctrace.on_ray`, S3", ranks, run(in_bucket, folder / "of-bucket", but=server.pid, **variables, **keys), memory=False)
    server.stdin.close()
    server.wait()
    expected = (folder / "whole").read_text().replace(f"{folder}/traces/", "")
    for name, prefix in (("from", f"{folder}/traces/"), ("of-ray", f"{folder}/traces/"), ("of-bucket", "s3://bucket/traces/")):
        if (folder / name).read_text().replace(prefix, "") != expected:
            sys.exit(f"{ranks} ranks: the report {name} is another one")


def sql(options, ranks, folder, traces):
    export = [options.gctrace, "export", "--format", "parquet"]
    row("tables of all ranks", ranks, run([*export, *traces, "-o", folder / "tables"]))
    row("tables of their summaries", ranks, run([*export, folder / "summaries", "-o", folder / "of-summaries"]))
    each = [run([*export, trace, "-o", folder / f"runs/day=2026-11-16/rank={rank}"]) for rank, trace in enumerate(traces)]
    row("tables of each rank", ranks, added(*each))
    answers = set()
    for name, program in (("DuckDB", DUCKDB), ("polars", POLARS)):
        for place, pattern in (("all", folder / "tables"), ("by rank", folder / "runs/*/*")):
            figures = min(run([options.tables, "-c", program, PAUSES, pattern], folder / "answer") for _ in range(3))
            row(f"a query, {name}, {place}", ranks, figures)
            found = json.loads((folder / "answer").read_text())
            answers.add(tuple((rank, pauses, round(ms, 6)) for rank, pauses, ms in found))
    if len(answers) != 1 or () in answers:
        sys.exit(f"{ranks} ranks: answers to one query differ: {[one[:3] for one in answers]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256])
    for name in ("ray", "tables"):
        parser.add_argument(f"--{name}", default=CHECKOUT / f".venv-{name}/bin/python", help="a Python of scripts/venv.sh")
    for name, usual in (("steps", 20), ("collectives", 15), ("kernels", 30)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    # What Ray leaves behind becomes a child, whose CPU time is counted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    print("| ranks | way | CPU s | wall s | MB |\n|---:|---|---:|---:|---:|")
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            sizes = [f"--{name}={getattr(options, name)}" for name in ("steps", "collectives", "kernels")]
            subprocess.run([sys.executable, CHECKOUT / "scripts/bench/generate_ranks.py", folder / "traces", f"--ranks={ranks}", *sizes], check=True)
            traces = sorted((folder / "traces").iterdir())
            reports(options, ranks, folder, traces)
            sql(options, ranks, folder, traces)
            for name in ("traces", "summaries", "tables", "runs"):
                size = sum(path.stat().st_size for path in (folder / name).rglob("*.*") if path.is_file())
                print(f"{ranks} ranks: {name}: {size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
