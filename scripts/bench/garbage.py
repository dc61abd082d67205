"""Cost of --garbage, as ratios of CPU time: a table with a row for each interpreter, mode, program
and variant.

    garbage.py --gctrace target/release/gctrace --python PYTHON... [--mode inject ebpf]
        [--variants types cycles unlimited-types unlimited-cycles off-alloc births] [--quads 10]

PYTHON is a program or a name of scripts/interpreters.sh. Two programs: examples/train.py, and one
that makes nothing but cycles. Each runs with garbage off and with each variant (unlimited: with a
budget of 100 %), in quadruples: off, variant, variant, off. A ratio is that of the two sums; shown
are the median and the middle half of all.

CPU times are those of the recorded program, and the trace says how many collections were examined
and how long that took. Run it on a quiet machine.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import manifest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

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

OFF = ["--garbage", "off"]
VARIANTS = {
    "types": ["--garbage", "types"],
    "cycles": ["--garbage", "cycles"],
    "unlimited-types": ["--garbage", "types", "--garbage-budget", "100"],
    "unlimited-cycles": ["--garbage", "cycles", "--garbage-budget", "100"],
    # What birth lines cost: the difference of these two.
    "off-alloc": ["--garbage", "off", "--alloc"],
    "births": ["--garbage", "types", "--alloc"],
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


def measure(options, mode, name, program, command, variant, folder):
    """Prints a row of the table."""
    own = VARIANTS[variant]
    ratios, seen = [], []
    for _ in range(options.quads):
        times = []
        for variables in (OFF, own, own, OFF):
            cpu_ns, garbage = run(options.gctrace, mode, manifest.program(name), command, variables, folder)
            times.append(cpu_ns)
            if variables is own:
                seen.append(garbage)
        ratios.append((times[1] + times[2]) / (times[0] + times[3]))
    examined, freeing, objects, cost_ns, births = (sum(column) for column in zip(*seen))
    figures = "- | - | -"
    if "off" not in own:
        if not examined or ("--alloc" in own and not births):
            raise SystemExit(f"{name}, {variant}: nothing was examined")
        figures = f"{examined / freeing:.1%} | {cost_ns / objects:.1f} | {births}"
    print(f"| {name} | {mode} | {program} | {variant} | {quartiles(ratios, '.3f')} | {figures} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gctrace", required=True, help="next to a libgctrace_inject.so of the same profile")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--mode", nargs="+", choices=["inject", "ebpf"], default=["inject"])
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS)[:4])
    parser.add_argument("--quads", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60, help="of examples/train.py")
    parser.add_argument("--cycles", type=int, default=1_000_000, help="of the other program")
    options = parser.parse_args()
    print("| interpreter | mode | program | --garbage | ratio to off | examined of the collections that freed |"
          " ns per object | births sampled |\n|---|---|---|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as own:
        folder = pathlib.Path(own)
        cycles = folder / "cycles.py"
        cycles.write_text(CYCLES)
        programs = {
            "examples/train.py": [str(CHECKOUT / "examples/train.py"), "--steps", str(options.steps)],
            "nothing but cycles": [str(cycles), str(options.cycles)],
        }
        for name, mode in itertools.product(options.python, options.mode):
            for (program, command), variant in itertools.product(programs.items(), options.variants):
                # Cycles are found in-process only.
                if mode == "inject" or "cycles" not in VARIANTS[variant]:
                    measure(options, mode, name, program, command, variant, folder)


if __name__ == "__main__":
    main()
