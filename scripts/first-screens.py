#!/usr/bin/env python3
"""Writes docs/first-screens.md: the first screen of every example, of public PyTorch traces, and of `import torch`;
and docs/example-report.md: all sections of one.

    sudo scripts/first-screens.py --gctrace FILE [--torch PYTHON] [--web FOLDER] [--mode auto]

FILE must have its libraries beside it (scripts/run.sh builds them).
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

PORT = 8642
HERE = pathlib.Path(__file__).resolve().parent.parent
HEAD = """# First screens

What `gctrace analyze` prints for the example programs, for `import torch` alone and for four traces of
the PyTorch profiler that others published (`analysis/tests/data/kineto`). Made by `scripts/first-screens.py`;
the figures are those of one run on a machine with two cores.
"""
FULL = """# Example report

The full report (`gctrace analyze --full trace.json`) of `examples/train.py`, a small neural network
in plain Python, recorded with `--step-function train_step`. `scripts/run.sh` records the program and
prints the first screen of your own. [report-schema.md](report-schema.md) describes each figure.
`scripts/first-screens.py` writes this page.

"""


def programs(options):
    """Heading and command."""
    yield "A network in plain Python", [options.python, "examples/train.py"]
    yield "A web server", [options.python, "examples/serve.py"]
    yield "An engine of three processes", [options.python, "examples/engine.py"]
    if options.torch:
        torch = [options.torch, "examples/train_torch.py", "--steps", "60", "--workers", "0"]
        yield "PyTorch on the CPU", torch
        yield "import torch", [options.torch, "-c", "import torch"]


def services(options):
    """Heading and command; they end with a signal."""
    if options.web:
        yield "FastAPI", [f"{options.web}/uvicorn", "--log-level", "error", "--port", str(PORT), "web:app"]
        bind = ["-b", f"127.0.0.1:{PORT}"]
        yield "A gunicorn pool", [f"{options.web}/gunicorn", "--log-level", "error", *bind, "-w", "2", "web:answer"]


def ask(requests):
    """Asks a service, once it answers; each time by a new connection."""
    for attempt in range(requests + 300):
        if attempt >= 300:
            time.sleep(random.expovariate(300))
        connection = http.client.HTTPConnection("127.0.0.1", PORT)
        try:
            body = json.dumps({"user": attempt % 50, "items": list(range(60))})
            connection.request("POST", "/", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        except ConnectionRefusedError:
            time.sleep(0.1)
        finally:
            connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--web", help="folder of FastAPI's uvicorn and of gunicorn: .venv-web/bin after scripts/venv.sh web")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--steps-python", default="python3.12", help="3.12 or later, for --step-function")
    options = parser.parse_args()
    gctrace = options.gctrace.resolve()
    environment = pathlib.Path(options.torch or sys.executable).absolute().parent.parent

    def plain(text):
        """Without the places of things on this machine."""
        text = text.replace(f"{environment}/", "venv/")
        if options.web:
            text = text.replace(f"{options.web}/", "")
        return re.sub(r"/\S+/(python3)[0-9.]*(?=\s)", r"\1", text)

    sections = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copytree(HERE / "examples", folder / "examples")

        def analyze(trace, *more):
            line = [gctrace, "analyze", *more, trace]
            return plain(subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True).stdout)

        def screen(heading, line, trace):
            sections.append(f"\n## {heading}\n\n`{line}`\n\n```\n{analyze(trace)}```\n")

        for heading, command in programs(options):
            line = [gctrace, "record", "-q", "--mode", options.mode, "-o", "trace.json", "--", *command]
            subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
            words = ["python3", *command[1:]]
            words = [f"'{word}'" if " " in word else word for word in words]
            screen(heading, f"gctrace -- {' '.join(words)}", "trace.json")
        for heading, command in services(options):
            line = [gctrace, "record", "-q", "--mode", options.mode, "-o", "trace.json", "--", *command]
            service = subprocess.Popen(line, cwd=folder / "examples", stdout=subprocess.DEVNULL)
            ask(4000)
            service.terminate()
            service.wait()
            words = [pathlib.Path(command[0]).name, *command[1:]]
            screen(heading, f"gctrace -- {' '.join(words)}", "examples/trace.json")
        demo = subprocess.run([gctrace, "demo", "-o", "demo.json"], cwd=folder, capture_output=True, text=True)
        if demo.returncode:
            raise SystemExit(f"the demo failed: {demo.stderr}")
        screen("The demo: a network on a simulated GPU", "gctrace demo", "demo.json")
        for trace in sorted((HERE / "analysis/tests/data/kineto").glob("*.json.gz")):
            shutil.copy(trace, folder)
            screen(trace.name, f"gctrace analyze {trace.name}", trace.name)
        line = [gctrace, "record", "-q", "--mode", "both", "--step-function", "train_step", "-o", "full.json"]
        line += ["--", options.steps_python, "examples/train.py"]
        subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        (HERE / "docs/example-report.md").write_text(f"{FULL}```\n{analyze('full.json', '--full')}```\n")
    (HERE / "docs/first-screens.md").write_text("".join(sections))


if __name__ == "__main__":
    main()
