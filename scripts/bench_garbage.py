"""Cost of --garbage in one mode, as ratios of CPU time.

    bench_garbage.py --gctrace target/release/gctrace --python PYTHON... [--mode ebpf] [--births] [--quads 10]

Two programs: examples/train.py, and one that makes nothing but cycles. Each runs with garbage off,
types, cycles, and types and cycles without a budget (100 %), in quadruples: off, variant,
variant, off. A ratio is that of the two sums; shown are the median and the middle half of all.
With --births the variants are what --alloc costs, without and with the lines of births.

CPU times are those of the recorded program, and the trace says how many collections were examined
and how long that took. Run it on a quiet machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

# Runs a script, and writes its CPU time to a file.
TIMED = """
import runpy, sys, time
result = sys.argv.pop(1)
sys.argv.pop(0)
start = time.process_time_ns()
runpy.run_path(sys.argv[0], run_name="__main__")
with open(result, "w") as file:
    file.write(str(time.process_time_ns() - start))
"""

CYCLES = """
import sys
class Node: pass
def trash(count):
    for _ in range(count):
        one, two = Node(), Node()
        one.other, two.other = two, one
        one.items = [one]
        def recursive(): return recursive
        del recursive
trash(int(sys.argv[1]))
"""

VARIANTS = {
    "types": ["--garbage", "types"],
    "cycles": ["--garbage", "cycles"],
    "types, budget 100 %": ["--garbage", "types", "--garbage-budget", "100"],
    "cycles, budget 100 %": ["--garbage", "cycles", "--garbage-budget", "100"],
}

BIRTHS = {
    "off, --alloc": ["--garbage", "off", "--alloc"],
    "types": ["--garbage", "types"],
    "types, --alloc (births)": ["--garbage", "types", "--alloc"],
}


def run(gctrace, mode, python, command, options, folder):
    """CPU time in ns, and what the trace has of garbage."""
    result, trace = folder / "cpu", folder / "trace.json"
    subprocess.run([gctrace, "record", "--mode", mode, "-q", "--cuda", "off", "--nvml-hz", "0", "-o", trace,
                    *options, "--", python, "-c", TIMED, result, *command], check=True, stdout=subprocess.DEVNULL)
    examined = freeing = objects = cost_ns = births = 0
    with open(trace, encoding="utf-8") as lines:
        for line in lines:
            line = line.strip().rstrip(",")
            if not line.startswith("{") or '"args"' not in line:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the first and the last line
            if event.get("name") == "gctrace_garbage":
                examined += 1
                objects += event["args"]["objects"]
                cost_ns += event["args"].get("cost_ns", 0)
                births += sum(own["samples"] for own in event["args"].get("births", []))
            elif event.get("ph") == "X" and event.get("cat") == "gc":
                freeing += event["args"].get("collected", 0) > 0
    return int(result.read_text()), (examined, freeing, objects, cost_ns, births)


def quartiles(numbers, form):
    low, middle, high = statistics.quantiles(numbers, n=4)
    return f"{middle:{form}} ({low:{form}} - {high:{form}})"


def table(gctrace, mode, python, name, command, variants, quads, folder):
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"\n### --garbage, {mode}, {version}: {name}\n")
    print("| | CPU time, ratio to off | collections examined of those that freed | ns per object "
          "| births sampled |\n|---|---|---|---|---|")
    for variant, options in variants.items():
        # Cycles are found in-process only.
        if mode == "ebpf" and "cycles" in options:
            continue
        ratios, seen = [], []
        for _ in range(quads):
            times = []
            for own in (["--garbage", "off"], options, options, ["--garbage", "off"]):
                cpu_ns, garbage = run(gctrace, mode, python, command, own, folder)
                times.append(cpu_ns)
                if own is options:
                    seen.append(garbage)
            ratios.append((times[1] + times[2]) / (times[0] + times[3]))
        examined, freeing, objects, cost_ns, births = (sum(column) for column in zip(*seen))
        figures = "- | - | -"
        if "off" not in options:
            if not examined or ("--alloc" in options and not births):
                raise SystemExit(f"{variant}: nothing was examined")
            figures = f"{examined / freeing:.1%} | {cost_ns / objects:.1f} | {births}"
        print(f"| {variant} | {quartiles(ratios, '.4f')} | {figures} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True, help="next to a libgctrace_inject.so of the same profile")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--mode", choices=["inject", "ebpf"], default="inject")
    parser.add_argument("--births", action="store_true", help="what birth lines cost, in-process")
    parser.add_argument("--quads", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60, help="of examples/train.py")
    parser.add_argument("--cycles", type=int, default=1_000_000, help="of the other program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = pathlib.Path(own)
        cycles = folder / "cycles.py"
        cycles.write_text(CYCLES)
        programs = {
            f"examples/train.py --steps {options.steps}":
                [str(CHECKOUT / "examples/train.py"), "--steps", str(options.steps)],
            f"nothing but {options.cycles} cycles": [str(cycles), str(options.cycles)],
        }
        for python in options.python:
            for name, command in programs.items():
                variants = BIRTHS if options.births else VARIANTS
                table(options.gctrace, options.mode, python, name, command, variants, options.quads, folder)


if __name__ == "__main__":
    main()
