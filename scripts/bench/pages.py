#!/usr/bin/env python3
"""Pages of `gctrace report`: how large, how long they take to make, and until a browser has drawn them.

    scripts/bench/pages.py TRACE [--gctrace PROGRAM] [--ranks 1024]

TRACE is a recording of gctrace: its pauses, drawn by lot with the times between them, give traces of 10,000, 100,000
and 250,000 pauses, which compress less than those of a program would. The ranks are generated: 100 steps and 200 pauses each, a trace
per rank. Needs Chromium. Prints a table.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(CHECKOUT / "tests/python"))
import browser  # noqa: E402

COUNTS = (10_000, 100_000, 250_000)


def write(path, events):
    path.write_text('{"traceEvents":[\n' + ",\n".join(json.dumps(event, separators=(",", ":")) for event in events) + "\n]}\n")


def drawn(trace, count):
    """The events of a trace with as many pauses, in the order of time."""
    events = json.loads(trace.read_text())["traceEvents"]
    pauses = [event for event in events if event.get("cat") == "gc" and event["ph"] == "X"]
    kept = [event for event in events if event["name"] in ("gctrace_header", "gctrace_process", "gctrace_frame")]
    chance = random.Random(1)
    ends = [event["ts"] + event["dur"] for event in pauses]
    gaps = [max(0, after["ts"] - end) for end, after in zip(ends, pauses[1:])]
    at = pauses[0]["ts"]
    for _ in range(count):
        at += chance.choice(gaps) + 0.001
        event = chance.choice(pauses)
        kept.append({**event, "ts": round(at, 3)})
        at += event["dur"]
    return kept


def rank(number):
    """100 steps and 200 pauses of a rank."""
    chance, at = random.Random(number), 0.0
    head = {"format": "gctrace.trace/1", "started_ns": 0, "started_unix_ns": 1_700_000_000_000_000_000, "rank": number, "command": ["python", "train.py"]}
    pid = 4000 + number
    events = [
        {"ph": "M", "name": "gctrace_header", "pid": 0, "tid": 0, "ts": 0, "args": head},
        {"ph": "M", "name": "gctrace_process", "pid": pid, "tid": pid, "ts": 0, "args": {"origin": "launched", "command": ["python", "train.py"], "rank": number}},
    ]
    for step in range(101):
        mark = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": pid, "tid": pid, "ts": round(at, 3), "dur": 1.0, "args": {}}
        events.append(mark)
        for generation in (0, 2 if step % 20 == 19 else 1):
            length = round(chance.uniform(30, 90) * 30 ** generation, 3)
            args = {"generation": generation, "reason": "automatic", "collected": chance.randrange(500)}
            events.append({"ph": "X", "cat": "gc", "name": "gc", "pid": pid, "tid": pid, "ts": round(at + 100, 3), "dur": length, "args": args})
            at += length + 200
        at += chance.uniform(20_000, 22_000)
    return events


def made(gctrace, traces, page):
    """CPU seconds and the largest memory in MB until the page is written."""
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)"
    command = [sys.executable, "-c", script, gctrace, "report", *traces, "-o", page, "--force"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return map(float, output.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--gctrace", default=str(CHECKOUT / "target/debug/gctrace"))
    parser.add_argument("--ranks", type=int, default=1024)
    options = parser.parse_args()
    print("| page | size | pauses in it, each | made: CPU s | memory | drawn |\n|---|---:|---:|---:|---:|---:|")
    chromium = browser.Browser()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        page = folder / "page.html"

        def row(name, traces):
            cpu_s, memory = made(options.gctrace, traces, page)
            text = page.read_text()
            data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
            pauses = len(data[0]["pauses"])
            count = sum(1 for path in traces for line in open(path) if '"cat":"gc"' in line)
            drawn_s = min(chromium.open(page) for _ in range(3))
            print(f"| {name} | {len(text.encode()) / 1e6:.2f} MB | {pauses / count:.1f} B | {cpu_s:.2f} | {memory:.0f} MB | {drawn_s:.2f} s |", flush=True)

        for count in COUNTS:
            trace = folder / "trace.json"
            write(trace, drawn(options.trace, count))
            row(f"{count:,} pauses", [trace])
        traces = []
        for number in range(options.ranks):
            traces.append(folder / f"rank{number}.json")
            write(traces[-1], rank(number))
        row(f"{options.ranks:,} ranks", traces)
    chromium.close()


if __name__ == "__main__":
    main()
