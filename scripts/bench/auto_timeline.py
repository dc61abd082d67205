#!/usr/bin/env python3
"""Draws one run of a program under `gctrace auto` over time, as SVG.

    scripts/bench/auto_timeline.py --gctrace FILE --python FILE [--steps 40000] [-o docs/pictures/auto.svg]

From top to bottom: the first threshold as the program reads it, its pauses as its own gc.callbacks see them, what
gctrace says that it saved, with its interval, and resident memory. The program is a training of equal steps with a
large heap; PYTHON is 3.12 or newer (`--step-function`).
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile

PROGRAM = """
import collections, gc, glob, json, os, sys, time
steps = int(sys.argv[1])
kept = [[i, [i]] for i in range(330_000)]
window = collections.deque(maxlen=40_000)
pauses, rows, begun, start = [], [], [0], time.monotonic()
def called(phase, info):
    now = time.monotonic()
    if phase == "start":
        begun[0] = now
    else:
        pauses.append((begun[0] - start, now - begun[0]))
gc.callbacks.append(called)
def train_step(i):
    x = 0
    for k in range(3000):
        x += k * k % 7
    window.extend([k] for k in range(200))
    for k in range(50):
        a = []
        b = [a]
        a.append(b)
reported = 0
for i in range(steps):
    train_step(i)
    if i % 20 == 0:
        rss = int(open("/proc/self/statm").read().split()[1]) * 4096
        rows.append((time.monotonic() - start, gc.get_threshold()[0], rss))
    if i % 500 == 0:
        for path in glob.glob(os.environ["GCTRACE_APPLY_FOLDER"] + "/%d.*json" % os.getpid()):
            with open(path) as file:
                found = json.load(file).get("auto")
            if found and found["saved"]:
                rows[-1] += tuple(found["saved"][key] / 1e9 for key in ("low_ns", "mean_ns", "high_ns"))
with open(sys.argv[2], "w") as file:
    json.dump({"pauses": pauses, "rows": rows}, file)
"""
WIDTH, LEFT, HEIGHT, GAP = 760, 70, 90, 26


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("docs/pictures/auto.svg"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "program.py").write_text(PROGRAM)
        line = [os.path.abspath(options.gctrace), "auto", "-q", "--step-function", "train_step", "--"]
        program = [options.python, "program.py", str(options.steps), "data.json"]
        subprocess.run([*line, *program], cwd=folder, check=True)
        data = json.loads((folder / "data.json").read_text())
        found = json.loads((folder / "auto.json").read_text())["processes"][0]
    options.output.write_text(picture(data, found, options.steps))


def picture(data, found, steps):
    rows, pauses = data["rows"], data["pauses"]
    saved = [(row[0], *row[3:]) for row in rows if len(row) > 3]
    end = rows[-1][0]
    panels = [
        ("threshold", lambda v: math.log10(max(v, 1)), [(row[0], row[1]) for row in rows], [700, 2000, 10000, 50000]),
        ("pauses, ms", lambda v: math.log10(max(v, 1e-3)), [(at, long * 1e3) for at, long in pauses], [0.01, 0.1, 1, 10, 100]),
        ("saved, s", lambda v: v, saved, None),
        ("resident, MB", lambda v: v, [(row[0], row[2] / 1e6) for row in rows], None),
    ]
    height = len(panels) * (HEIGHT + GAP) + 54
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]

    def x(at):
        return LEFT + at / end * (WIDTH - LEFT - 20)

    for number, (name, scale, points, ticks) in enumerate(panels):
        top = number * (HEIGHT + GAP) + 34
        values = [scale(value) for point in points for value in point[1:]] + [scale(tick) for tick in ticks or []]
        least, most = (min(values), max(values)) if values else (0, 1)
        if not ticks:
            least = min(least, 0)
            most = most if most > least else least + 1
            ticks = [0, round(most, 1 if most < 100 else 0)]

        def y(value, least=least, most=most, top=top, scale=scale):
            return top + HEIGHT - (scale(value) - least) / ((most - least) or 1) * HEIGHT

        lines.append(f'<text x="{LEFT}" y="{top - 5}" font-weight="bold">{name}</text>')
        for tick in ticks:
            lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
            lines.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,}</text>')
        if name == "pauses, ms":
            lines += [f'<circle cx="{x(at):.1f}" cy="{y(long):.1f}" r="1.2" fill="#c33"/>' for at, long in points]
        elif name == "saved, s":
            area = [f"{x(point[0]):.1f},{y(point[1]):.1f}" for point in points]
            area += [f"{x(point[0]):.1f},{y(point[3]):.1f}" for point in reversed(points)]
            lines.append(f'<polygon points="{" ".join(area)}" fill="#9c9" fill-opacity="0.5"/>')
            lines.append(path([(x(point[0]), y(point[2])) for point in points], "#060"))
        else:
            lines.append(path([(x(at), y(value)) for at, value in points], "#036"))
    bottom = height - 28
    for event in found["events"]:
        place = x(event["step"] / steps * end)
        lines.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="14" y2="{bottom}" stroke="#999" stroke-dasharray="3,3"/>')
        lines.append(f'<text x="{place + 3:.1f}" y="12" fill="#555">{event["decision"].replace("_", " ")}</text>')
    for second in range(0, int(end) + 1, max(1, int(end) // 8)):
        lines.append(f'<text x="{x(second):.1f}" y="{height - 12}" text-anchor="middle">{second} s</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def path(points, color):
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="1.3"/>'


if __name__ == "__main__":
    main()
