"""Why the GPU idled, of PyTorch profiler traces: gctrace's ledger beside HolisticTraceAnalysis's idle classes and its
critical path; prints Markdown.

    ledgers.py --gctrace BINARY [TRACE.json.gz ...]

Without traces those of analysis/tests/data/kineto. HTA is installed as by hta.py. Its critical path is that of the whole
trace; what fails is printed with its message.
"""

import argparse
import json
import pathlib
import subprocess

from hta import TRACES, hta_python

# Prints HTA's idle time by class, of all streams in us, and the parts of its critical path in percent, or an error.
ASK = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis

def attempt(question):
    try:
        return question()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def classes():
    table = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    return {name: float(rows.idle_time.sum()) for name, rows in table.groupby("idle_category", observed=True)}

def path():
    graph, found = analysis.critical_path_analysis(rank=0, annotation="", instance_id=None)
    if not found:
        return "no critical path"
    return {name: share for name, share in graph.summary().items() if name}

output, sys.stdout = sys.stdout, sys.stderr
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
json.dump([attempt(classes), attempt(path)], output)
"""
CLASSES = ("host_wait", "kernel_wait", "other")
# Rows below this part of the idle time are one.
SHOWN = 0.005


def of_hta(python, trace):
    run = subprocess.run([python, "-c", ASK, str(trace), str(trace.parent)], capture_output=True, text=True)
    if run.returncode:
        error = (run.stderr.strip().splitlines() or [f"status {run.returncode}"])[-1]
        return error, error
    return json.loads(run.stdout)


def of_gctrace(binary, trace):
    run = subprocess.run([binary, "analyze", "--format", "json", str(trace)], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["gpu"]


def percent(share):
    return f"{100 * share:.1f} %"


def cell(text):
    return text.splitlines()[0].replace("|", "\\|")


def ledger_row(name, ledger, path):
    idle = ledger["idle_ns"]
    shares = [(row["cause"].replace("_", " "), row["time_ns"] / idle) for row in ledger["rows"]]
    assert sum(row["time_ns"] for row in ledger["rows"]) == idle, name
    rest = sum(share for _, share in shares if share < SHOWN)
    shown = [f"{cause} {percent(share)}" for cause, share in shares if share >= SHOWN]
    shown += [f"rest {percent(rest)}"] if rest >= 0.0005 else []
    if isinstance(path, str):
        theirs = f"fails: {cell(path)}"
    else:
        parts = sorted(path.items(), key=lambda part: -part[1])
        theirs = ", ".join(f"{part} {share:.1f} %" for part, share in parts if share >= 0.05)
    sample = " (a sample)" if ledger["sample"] else ""
    return f"| `{name}`{sample} | {percent(idle / ledger['span_ns'])} | {', '.join(shown)} | {theirs} |"


def classes_row(name, gpu, classes):
    ours = [sum(stream["idle_ns"][of] for device in gpu["devices"] for stream in device["streams"]) / 1e6 for of in CLASSES]
    if isinstance(classes, str):
        theirs = [f"fails: {cell(classes)}", "", ""]
    else:
        theirs = [f"{classes.get(of, 0) / 1e3:,.3f} ms" for of in CLASSES]
    return f"| `{name}` | " + " | ".join([*theirs, *(f"{ms:,.3f} ms" for ms in ours)]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("traces", nargs="*", type=pathlib.Path, default=sorted(TRACES.glob("*.json.gz")))
    options = parser.parse_args()
    python, why = hta_python()
    ledgers, classes = [], []
    for trace in (trace.resolve() for trace in options.traces):
        name = trace.name.removesuffix(".gz").removesuffix(".json")
        gpu = of_gctrace(options.gctrace, trace)
        by_class, path = of_hta(python, trace) if python else (why, why)
        ledgers += [ledger_row(name, ledger, path) for ledger in gpu["idle"]]
        classes.append(classes_row(name, gpu, by_class))
    print("| trace | idle | the ledger, of idle time | HTA's critical path, of its length |\n|---|---|---|---|")
    print("\n".join(ledgers))
    print("\n| trace | HTA: host wait | kernel wait | other | report: host wait | kernel wait | other |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(classes))


main()
