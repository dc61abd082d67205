"""Runs fuzz targets alternately and counts their runs. See fuzz.sh, which builds them.

Recorded in FOLDER/runs.tsv, a line for each run: target, runs, CPU seconds, corpus size, failures.
"""

import argparse
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
# All runs so far; docs/evidence.md links to it.
TABLE = CHECKOUT / "scripts/bench/results/fuzz.csv"

# Target -> maximum length of an input in bytes, and what it is.
TARGETS = {
    "read": (16384, "traces, ours and the PyTorch profiler's: reader and analysis"),
    "live": (16384, "records fed to the live view: its figures"),
    "summary": (16384, "summaries: reader and report; of a trace, the same items"),
    "heap": (65536, "heaps: reader and answers"),
    "resolve": (200000, "ELF files: where the collector is"),
    "code_object": (8192, "memory of a process: names, lines, stacks"),
    "ring": (65536, "memory shared with a traced program: records"),
    "rendezvous": (8192, "the socket where programs hand over their rings"),
    "records": (8192, "records of the kernel's rings"),
}
SEEDS = {
    "read": ["analysis/fuzz/seeds/read"],
    "live": ["analysis/fuzz/seeds/read"],
    "summary": ["analysis/fuzz/seeds/summary", "analysis/fuzz/seeds/read"],
}


def run(target, seconds, programs, folder):
    """One run; returns (runs, CPU seconds, whether it failed)."""
    corpus, failed = folder / "corpus" / target, folder / "failed"
    corpus.mkdir(parents=True, exist_ok=True)
    failed.mkdir(exist_ok=True)
    longest, _ = TARGETS[target]
    command = [str(programs / target), str(corpus), "-max_total_time=%d" % seconds,
               "-max_len=%d" % longest, "-timeout=10", "-rss_limit_mb=1024",
               "-artifact_prefix=%s/%s-" % (failed, target), "-print_final_stats=1"]
    if target in SEEDS:
        command.append("-dict=%s" % (CHECKOUT / "analysis/fuzz/records.dict"))
    command += [str(CHECKOUT / folder) for folder in SEEDS.get(target, [])]
    log = folder / ("%s.log" % target)
    before = os.times()
    with open(log, "wb") as file:
        process = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=str(folder))
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    text = log.read_text(errors="replace")
    counted = re.search(r"^stat::number_of_executed_units:\s*(\d+)", text, re.MULTILINE)
    if process.returncode:
        shutil.copy(log, failed / ("%s-%d.log" % (target, os.getpid())))
    return int(counted.group(1)) if counted else 0, cpu, process.returncode != 0


def fuzz(options):
    unknown = [target for target in options.targets if target not in TARGETS]
    if unknown:
        sys.exit("fuzz: no target %s: %s" % (unknown[0], ", ".join(TARGETS)))
    targets, failures = options.targets or list(TARGETS), 0
    folder = pathlib.Path(options.folder)
    for _ in range(options.rounds):
        for target in targets:
            runs, cpu, failed = run(target, options.seconds, pathlib.Path(options.programs), folder)
            failures += failed
            with open(folder / "runs.tsv", "a") as file:
                file.write("%s\t%d\t%.1f\t%d\n" % (target, runs, cpu, failed))
            outcome = "FAILED, see %s" % (folder / "failed") if failed else "no failure"
            print("%-12s %12s runs  %6.1f s of CPU time  %s" % (target, format(runs, ","), cpu, outcome),
                  flush=True)
    return 1 if failures else 0


def count(folder):
    """Adds runs.tsv to the table, and empties it."""
    runs = folder / "runs.tsv"
    totals = {target: [0, 0.0, 0] for target in TARGETS}
    with open(TABLE, newline="") as file:
        for row in csv.DictReader(file):
            if row["target"] != "all":
                number, minutes = int(row["runs"].replace(",", "")), float(row["CPU minutes"])
                totals[row["target"].strip("`")] = [number, minutes * 60, int(row["failures"])]
    for line in runs.read_text().splitlines() if runs.exists() else []:
        target, number, cpu, failed = line.split("\t")
        total = totals[target]
        total[0], total[1], total[2] = total[0] + int(number), total[1] + float(cpu), total[2] + int(failed)
    rows = [(target, TARGETS.get(target, (0, "no more"))[1], *total) for target, total in totals.items()]
    rows.append(("all", "", *(sum(column) for column in zip(*totals.values()))))
    with open(TABLE, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["target", "what it reads", "runs", "CPU minutes", "failures"])
        table.writerows((target, what, number, "%.1f" % (cpu / 60), failures) for target, what, number, cpu, failures in rows)
    runs.unlink(missing_ok=True)
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--rounds", type=int, default=1, help="number of runs per target")
    parser.add_argument("--count", action="store_true", help="add the recorded runs to scripts/bench/results/fuzz.csv")
    parser.add_argument("--folder", default=str(CHECKOUT / "target/fuzz"), help=argparse.SUPPRESS)
    parser.add_argument("--programs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    return count(pathlib.Path(options.folder)) if options.count else fuzz(options)


if __name__ == "__main__":
    sys.exit(main())
