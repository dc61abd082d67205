"""gctrace analyze against HolisticTraceAnalysis on PyTorch profiler traces: part "hta" of bench.py.

The same files for both: those of analysis/tests/data/kineto, and one enlarged by repeating its
events, shifted in time and with their own correlation ids, plain and compressed. Of HTA only its
work on the trace is timed, inside its process, after the import: TraceAnalysis (which parses),
get_temporal_breakdown and get_idle_time_breakdown; its memory is stated as a whole and minus that
of the import. Of gctrace the whole process is timed, and it computes its whole report.

HTA is installed in its own virtual environment. If that fails, the part is left out with a message.
"""

import gzip
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TRACES = CHECKOUT / "analysis/tests/data/kineto"
HTA = "HolisticTraceAnalysis==0.5.0"
# Newer ones lack what its critical path calls.
PANDAS = "pandas<3"
ENLARGED_BYTES = 200_000_000

# Reports seconds of parsing and of breakdowns, CPU seconds of both, and peak memory in KiB: after
# the import, and at the end.
MEASURE = """
import json, re, sys, time
from hta.trace_analysis import TraceAnalysis
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
imported, began, cpu = peak(), time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
parsed = time.perf_counter()
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
json.dump([parsed - began, time.perf_counter() - parsed, time.process_time() - cpu, imported, peak()], open(sys.argv[3], "w"))
"""


def hta_python(folder=CHECKOUT / ".venv-hta"):
    """The Python of an environment with HTA, or None and the reason."""
    python = folder / "bin/python"
    if (folder / ".complete").exists():
        return str(python), None
    for base in ("/usr/bin/python3", "python3"):
        made = subprocess.run([base, "-m", "venv", "--clear", str(folder)], capture_output=True, text=True)
        if made.returncode == 0:
            break
    else:
        return None, "no Python with venv"
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", HTA, PANDAS],
                               capture_output=True, text=True)
    if installed.returncode:
        return None, f"{HTA} could not be installed: {installed.stderr.strip().splitlines()[-1:]}"
    if subprocess.run([python, "-c", "import hta.trace_analysis"], capture_output=True).returncode:
        return None, f"{HTA} is installed but does not import"
    (folder / ".complete").touch()
    return str(python), None


def enlarged(source, target, size=ENLARGED_BYTES):
    """Repeats the events of a trace, each time later, until the file has `size` bytes."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    events = trace.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X"]
    span = max(event["ts"] + event["dur"] for event in timed) - min(event["ts"] for event in timed) + 1000
    ids = 1 + max(event["args"].get("correlation", 0) for event in timed)
    with open(target, "w") as file:
        head = json.dumps(trace)
        file.write(head[:-1] + ', "traceEvents": [\n')
        file.write(",\n".join(json.dumps(event) for event in events if event.get("ph") == "M"))
        repeat = 0
        while file.tell() < size:
            for event in timed:
                args = dict(event.get("args", {}))
                for key in ("correlation", "External id"):
                    if isinstance(args.get(key), int) and args[key] > 0:
                        args[key] += repeat * ids
                moved = {**event, "ts": round(event["ts"] + repeat * span, 3), "args": args}
                file.write(",\n" + json.dumps(moved))
            repeat += 1
        file.write("\n]}\n")
    return repeat


def of_gctrace(options, trace):
    """Seconds, CPU seconds and KiB of the whole process. GNU time starts it: started from here, its
    peak would be that of this interpreter, which the kernel counts up to exec."""
    with tempfile.NamedTemporaryFile("r") as peak:
        began = time.monotonic()
        subprocess.run(["/usr/bin/time", "-f", "%M %U %S", "-o", peak.name, options.gctrace, "analyze", "--format", "json",
                        str(trace)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        memory, user, system = peak.read().split()
        return seconds, float(user) + float(system), int(memory)


def of_hta(python, trace):
    """The results of MEASURE, or HTA's error."""
    with tempfile.NamedTemporaryFile() as result:
        run = subprocess.run([python, "-c", MEASURE, str(trace), str(trace.parent), result.name],
                             capture_output=True, text=True)
        if run.returncode:
            return None, (run.stderr.strip().splitlines() or [f"status {run.returncode}"])[-1]
        return json.load(open(result.name)), None


def row(options, python, trace, repetitions):
    ours = [of_gctrace(options, trace) for _ in range(repetitions)]
    theirs = [of_hta(python, trace) for _ in range(repetitions)]
    failed = next((why for values, why in theirs if values is None), None)
    size = trace.stat().st_size / 1e6
    seconds, cpu = (statistics.median(one[at] for one in ours) for at in (0, 1))
    memory = max(one[2] for one in ours) / 1024
    row = f"| `{trace.name}`, {size:.1f} MB | {seconds:.3f} ({cpu:.2f}) | {memory:.1f} |"
    if failed:
        print(f"{row} HTA failed: {failed} | | | |")
        return
    values = [one for one, _ in theirs]
    parse, breakdowns, their_cpu = (statistics.median(one[at] for one in values) for at in (0, 1, 2))
    imported, peak = (max(one[at] for one in values) / 1024 for at in (3, 4))
    # GNU time has a resolution of hundredths.
    by_cpu = f"{their_cpu / cpu:.0f}" if cpu >= 0.02 else f"over {their_cpu / 0.02:.0f}"
    print(f"{row} {parse:.2f} + {breakdowns:.2f} ({their_cpu:.2f}) | {peak:.0f} ({peak - imported:.0f}) | "
          f"{(parse + breakdowns) / seconds:.0f} ({by_cpu}) | {peak / memory:.0f} ({(peak - imported) / memory:.0f}) |")


def hta(options, folder):
    repetitions = min(3, options.repetitions)
    print(f"\n### Traces of the PyTorch profiler: gctrace and {HTA}, median of {repetitions}\n")
    python, why = hta_python()
    if python and not pathlib.Path("/usr/bin/time").exists():
        python, why = None, "no /usr/bin/time (Debian, Ubuntu: apt-get install time)"
    if not python:
        print(f"left out: {why}")
        return
    large = folder / "enlarged.json"
    repeats = enlarged(TRACES / "ns_resolution_rank0.json.gz", large)
    packed = folder / "enlarged.json.gz"
    with open(large, "rb") as plain, gzip.open(packed, "wb", compresslevel=6) as file:
        while chunk := plain.read(1 << 20):
            file.write(chunk)
    print(f"`enlarged.json` is `ns_resolution_rank0` {repeats} times. gctrace: the whole process. HTA: without its "
          "import, parsing + breakdowns; its memory whole and less that after the import.\n")
    print("| trace | gctrace, s (CPU) | MB | HTA, s (CPU) | MB (beyond import) | times as fast (by CPU) | "
          "times the memory (beyond import) |")
    print("|---|---|---|---|---|---|---|")
    for trace in [*sorted(TRACES.glob("*.json.gz")), large, packed]:
        row(options, python, trace, repetitions)
