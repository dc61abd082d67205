#!/usr/bin/env python3
"""How good predictions are: each priced remedy against what it saved, from the traces and runs that matrix.py kept.

    calibration.py --gctrace FILE --out FOLDER [--picture FILE.svg]

FOLDER is that of matrix.py. Prints a table by kind of remedy, and draws predicted against measured savings, as shares of
what the collector took: a bar is a range, its dot the likely saving.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import matrix

SIZE, MARGIN = 460, 56
# Of the collector's time: what the picture shows.
LEAST, MOST = -0.6, 1.2


def predictions(gctrace, folder):
    """One entry for each priced remedy that was measured."""
    for file in sorted(folder.glob("*/*.truth.json")):
        program, python = file.name.removesuffix(".truth.json"), file.parent.name
        truth = json.loads(file.read_text())
        for mode in sorted(path.name for path in file.parent.iterdir() if path.is_dir()):
            trace = file.parent / mode / f"{program}.json"
            analyze = subprocess.run([gctrace, "analyze", "--json", trace], check=True, stdout=subprocess.PIPE)
            report = json.loads(analyze.stdout)
            for advised, advice in [(True, one) for one in report["advice"]] + [(False, one) for one in report["not_advised"]]:
                priced = matrix.against(report, advice, truth)
                if priced:
                    yield {"program": program, "python": python, "mode": mode, "advised": advised, **priced}


def table(entries):
    print("| remedy | priced | in range | width / likely, median | measured / likely, median |\n|" + "---|" * 5)
    kinds = sorted({(not one["advised"], one["remedy"].partition("=")[0]) for one in entries})
    groups = [(f"{kind}{', not advised' if late else ''}", [
        one for one in entries if (not one["advised"], one["remedy"].partition("=")[0]) == (late, kind)
    ]) for late, kind in kinds]
    groups.append(("**all advised**", [one for one in entries if one["advised"]]))
    for name, group in groups:
        held = sum(one["held"] for one in group)
        likely = [one for one in group if one["likely_s"] > 0]
        width = matrix.median([(one["high_s"] - one["low_s"]) / one["likely_s"] for one in likely])
        ratio = matrix.median([one["saved_s"] / one["likely_s"] for one in likely])
        print(f"| {name} | {len(group)} | {held} ({held / len(group):.0%}) | {width:.2f} | {ratio:.2f} |")


def picture(entries):
    def at(share):
        share = min(max(share, LEAST), MOST)
        return MARGIN + (share - LEAST) / (MOST - LEAST) * SIZE

    side = SIZE + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side} {side}" font-family="sans-serif" font-size="12">',
        f'<rect width="{side}" height="{side}" fill="white"/>',
    ]
    for percent in range(-60, 121, 20):
        place = at(percent / 100)
        lines.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{MARGIN}" y2="{side - MARGIN}" stroke="#eee"/>')
        lines.append(f'<line y1="{place:.1f}" y2="{place:.1f}" x1="{MARGIN}" x2="{side - MARGIN}" stroke="#eee"/>')
        lines.append(f'<text x="{place:.1f}" y="{side - MARGIN + 18}" text-anchor="middle">{percent} %</text>')
        lines.append(f'<text x="{MARGIN - 6}" y="{side - place + 4:.1f}" text-anchor="end">{percent} %</text>')
    low, high = at(LEAST), at(MOST)
    lines.append(f'<line x1="{low}" y1="{side - low}" x2="{high}" y2="{side - high}" stroke="#999"/>')
    for one in sorted(entries, key=lambda one: one["advised"]):
        x = at(one["saved_s"] / one["collector_s"])
        bottom, top = (side - at(one[end] / one["collector_s"]) for end in ("low_s", "high_s"))
        color = "#bbb" if not one["advised"] else "#1a7f37" if one["held"] else "#cf222e"
        dot = side - at(one["likely_s"] / one["collector_s"])
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{top:.1f}" stroke="{color}" opacity="0.6"/>')
        lines.append(f'<circle cx="{x:.1f}" cy="{dot:.1f}" r="2.2" fill="{color}"/>')
    lines.append(f'<text x="{side / 2}" y="{side - 14}" text-anchor="middle">measured saving, of the collector\'s CPU time</text>')
    lines.append(f'<text transform="translate(14 {side / 2}) rotate(-90)" text-anchor="middle">predicted saving</text>')
    lines.append(f'<text x="{side / 2}" y="24" text-anchor="middle">advised: in range green, outside red; not advised gray</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gctrace", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    options = parser.parse_args()
    entries = list(predictions(options.gctrace, options.out))
    if not entries:
        sys.exit(f"{options.out} has no measurements: run matrix.py --out {options.out} first")
    table(entries)
    if options.picture:
        options.picture.write_text(picture(entries))


if __name__ == "__main__":
    main()
