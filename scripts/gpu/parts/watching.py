"""NVML against nvidia-smi; the live view and its metrics page during training; gctrace killed
during training; device memory freed in pauses."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.request

from bench import binary, device, number_of_steps, read_json, window
from compare import compare_figures, offset_ns, our_figures, their_figures

LIMIT_S = 110
SMI = ["nvidia-smi", "--format=csv,noheader,nounits", "-lms", "100",
       "--query-gpu=timestamp,uuid,utilization.gpu,memory.used,power.draw,clocks.sm,clocks.mem"]
PORT = 19464


def nvml(bench):
    if shutil.which("nvidia-smi") is None:
        return [["NVML", None, None, "skipped: no nvidia-smi"]]
    path = bench.path("smi.csv")
    with open(path, "w") as file:
        smi = subprocess.Popen(SMI, stdout=file, env=os.environ | {"TZ": "UTC0"})
    try:
        events, steps, _ = bench.record("nvml", "--steps", 1500, options=("--nvml-hz", 20))
    finally:
        smi.kill()
        smi.wait()
    os.environ["TZ"] = "UTC0"
    time.tzset()
    start, end = window(steps)
    span = {"gpu": steps["gpu"], "start_ns": start * 1e3, "end_ns": end * 1e3}
    rows = compare_figures(our_figures(events, span), their_figures(path.read_text(), span, offset_ns(events)))
    return [[row.what, row.ours, row.theirs, "ok" if row.ok else "differs"] for row in rows]


def live(bench):
    """`top --format text --listen`: lines are printed, and the page has the training's process."""
    command, steps = bench.training("live", "--steps", number_of_steps(1500, 100), "--heap", 100_000, "--kept", 2_000)
    page, trace = "", bench.path("live.json.gz")
    top = subprocess.Popen([binary(), "top", "--mode", "inject", "--format", "text", "--interval", "1", "--listen", f"127.0.0.1:{PORT}",
                            "--record", str(trace), "--", *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        while top.poll() is None:
            time.sleep(0.5)
            try:
                page = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=2).read().decode()
            except OSError:
                pass
    finally:
        lines = top.communicate()[0].splitlines()
    pid = read_json(steps)["pid"]
    counted = sum(float(value) for value in re.findall(rf'^gctrace_process_pauses_total{{.*pid="{pid}".*}} (\S+)$', page, re.M))
    pauses = sum(event.get("cat") == "gc" for event in read_json(trace)["traceEvents"])
    return [
        ["top --format text: exit code, lines", top.returncode, len(lines), "ok" if top.returncode == 0 and lines else "differs"],
        ["metrics page: collections at the last scrape, in the trace", int(counted), pauses,
         "ok" if 0 < counted <= pauses else "differs"],
    ]


def killed(bench):
    """The training continues to the same loss."""
    size = ("--steps", number_of_steps(600, 300))
    expected = bench.train("unrecorded", *size)["loss"]
    command, steps = bench.training("killed", *size)
    gctrace = subprocess.Popen([binary(), "record", "--mode", "inject", "-o", str(bench.path("killed.json")), "--", *command],
                               stdin=subprocess.DEVNULL)
    began = time.monotonic()
    while not pathlib.Path(f"{steps}.begun").exists() and time.monotonic() - began < 40:
        time.sleep(0.05)
    time.sleep(0.3)
    early = not steps.exists()
    gctrace.send_signal(signal.SIGKILL)
    gctrace.wait()
    while not steps.exists() and time.monotonic() - began < 60:
        time.sleep(0.2)
    time.sleep(0.5)
    loss = read_json(steps)["loss"] if steps.exists() else None
    return [["gctrace killed (before the end?), loss with and without", loss, expected,
             f"ok{'' if early else ', but the training had ended'}" if loss == expected else "differs"]]


def memory(bench):
    """Bytes that collections freed, against torch.cuda.memory_allocated() in gc.callbacks."""
    if device() != "cuda":
        return [["device memory freed in pauses", None, None, "skipped: torch sees no GPU"]]
    events, steps, _ = bench.record("memory", "--steps", 200, "--cycles", 4, mode="both", options=("--cuda", "all"))
    start, end = window(steps)
    ours = sum(event["args"]["freed_bytes"] for event in events
               if event["name"] == "gctrace_pause_memory" and start <= event["ts"] <= end)
    theirs = sum(found[4] for found in steps["collections"] if start <= found[0] / 1e3 <= end)
    return [["device memory freed in pauses, bytes", ours, theirs, "ok" if ours == theirs else "differs"]]


def run(bench):
    rows = []
    for piece in (nvml, live, killed, memory):
        try:
            rows += piece(bench)
        except Exception as error:
            rows.append([piece.__name__, None, None, f"differs: {type(error).__name__}: {error}"])
    return [{"title": "While it trains", "head": ["", "gctrace", "the other", ""], "rows": rows}]
