"""Starts about 50 programs a second, each a new file, until the file `stop` exists or their maximum
number is reached; then reports which of them did not end.

    spawner.py FOLDER [MOST]

Each is a copy of sleep, made as large as an interpreter, so that gctrace cannot rule it out by its
size. `ready` is written after the first one, `report.json` at the end: {"started": n, "stuck":
[state of each that did not end within 20 s]}.
"""

import json
import os
import shutil
import subprocess
import sys
import time

folder = sys.argv[1]
most = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
limit = time.monotonic() + 60
os.makedirs(folder, exist_ok=True)


def state(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2].split()[0]


def start(number):
    program = f"{folder}/program{number}"
    shutil.copy(shutil.which("sleep"), program)
    os.truncate(program, 4 << 20)
    return subprocess.Popen([program, "0.02"])


programs, started = [], 0
while not os.path.exists(f"{folder}/stop") and started < most and time.monotonic() < limit:
    programs.append(start(started))
    started += 1
    programs = [program for program in programs if program.poll() is None]
    if started == 1:
        open(f"{folder}/ready", "w").close()
    time.sleep(0.01)
stuck = []
for program in programs:
    try:
        program.wait(20)
    except subprocess.TimeoutExpired:
        stuck.append(state(program.pid))
        program.kill()
        program.wait()
with open(f"{folder}/report", "w") as report:
    json.dump({"started": started, "stuck": stuck}, report)
os.rename(f"{folder}/report", f"{folder}/report.json")
