"""What measuring memory by layer costs a step: scripts/bench/layers.py [--pairs N] [MODEL ...]

Run by a Python with torch (scripts/torch-venv.sh). The models are those of tests/python/torch_layers.py, the agent
is the injected library's own. Steps in ABBA blocks, A measured and B not, in one process, by the CPU time of the
thread. Prints per model: what a measured step costs more, what the agent says that it costs (from which it decides
how often it measures), and the share of the time at the distance that it chooses.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["names", "storages", "hooks", "table", "steps", "history"]
AGENT = [ROOT / f"probes/inject/src/python/layers/{part}.py" for part in PARTS]
MODELS = ["mlp", "cnn", "transformer", "checkpointed", "neumf", "lstm", "lora", "compiled"]


def constants():
    """The lines that the library puts before the agent's parts."""
    words = (ROOT / "probes/ring/src/record/layer_words.txt").read_text().splitlines()
    bits = [f"{word.upper()} = 1 << {bit}\n" for line in words for bit, word in enumerate(line.split())]
    return "".join(bits) + "MOST_ROWS = 1000\n"


def models():
    spec = importlib.util.spec_from_file_location("torch_layers", ROOT / "tests/python/torch_layers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(name, programs, pairs):
    agent = {"modules": sys.modules}
    exec(compile(constants() + "".join(part.read_text() for part in AGENT), "<gctrace layers>", "exec"), agent)
    program = programs.Program(name)
    for _ in range(10):
        program.step()
    measured, plain, claimed = [], [], []
    for at in range(4 * pairs):
        is_measured = at % 4 in (0, 3)
        begun = time.thread_time_ns()
        if is_measured:
            agent["at_step"](1, (program.optimizer,), 10)
        program.step()
        if is_measured:
            table = agent["at_step"](2, (program.optimizer,), 10)
        length = time.thread_time_ns() - begun
        (measured if is_measured else plain).append(length)
        if is_measured:
            if not isinstance(table, tuple):
                sys.exit(f"{name}: {table}")
            claimed.append(table[5])
    step, cost = statistics.median(plain), statistics.median(measured) - statistics.median(plain)
    claim = statistics.median(claimed)
    every = int(claim / agent["BUDGET"] / step) + 1
    modules = sum(1 for _ in program.model.modules())
    print(
        f"| {name} | {modules} | {step / 1e6:.2f} ms | +{cost / 1e6:.2f} ms ({100 * cost / step:.1f} %) | "
        f"{claim / 1e6:.2f} ms | {claim / cost:.2f} | {every} | {100 * cost / step / every:.2f} % |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60, help="ABBA blocks of a model")
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    programs = models()
    print("| model | modules | step | a measured step | said | said / measured | one in | share |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.models:
        measure(name, programs, arguments.pairs)


if __name__ == "__main__":
    main()
