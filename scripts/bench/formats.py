#!/usr/bin/env python3
"""Sizes of traces by format, and the CPU time of packing and reading them: docs/evidence.md, "Reports,
summaries, tables".

    scripts/bench/formats.py GCTRACE -- COMMAND...

Records COMMAND once in each format; the table has what it recorded. Then, of the same text: the CPU time of zlib (of
Python) and zstd (the program) at some levels without flushes, and that of `gctrace analyze` of each packed form beside
the plain text, all in turn; stated is the smallest of five. GCTRACE's own compressors are as fast as its build lets
them be: take a release build for times.
"""

import pathlib
import resource
import subprocess
import sys
import tempfile
import zlib

ENDINGS = "json", "json.gz", "json.zst"


def cpu(run):
    """Smallest CPU time of five runs, this process and those it waited for, in seconds."""
    def now():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    times = []
    for _ in range(5):
        begun = now()
        run()
        times.append(now() - begun)
    return min(times)


def quiet(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def unpacked(path):
    program = {".gz": "zcat", ".zst": "zstdcat"}.get(path.suffix, "cat")
    return subprocess.run([program, path], check=True, stdout=subprocess.PIPE).stdout


def main(gctrace, command):
    with tempfile.TemporaryDirectory() as place:
        traces = {ending: pathlib.Path(place) / f"trace.{ending}" for ending in ENDINGS}
        print("| format | pauses | bytes | a pause |\n|---|---|---|---|")
        for ending, path in traces.items():
            quiet(gctrace, "-q", "-o", path, "--", *command)
            size, pauses = path.stat().st_size, unpacked(path).count(b'"cat":"gc"')
            print(f"| .{ending} | {pauses:,} | {size:,} | {size / pauses:.1f} |")
        text = traces["json"].read_bytes()
        pauses = text.count(b'"cat":"gc"')
        print("\n| packed whole | bytes a pause | us of CPU a pause |\n|---|---|---|")
        packed = zlib.compress(text, 6)
        print(f"| zlib, 6 | {len(packed) / pauses:.1f} | {1e6 * cpu(lambda: zlib.compress(text, 6)) / pauses:.2f} |")
        nothing = cpu(lambda: quiet("zstd", "--version"))
        for level in "3", "6", "9":
            whole = pathlib.Path(place) / f"{level}.zst"
            took = cpu(lambda: quiet("zstd", "-qf", "--single-thread", f"-{level}", traces["json"], "-o", whole)) - nothing
            print(f"| zstd, {level} | {whole.stat().st_size / pauses:.1f} | {1e6 * took / pauses:.2f} |")
        same = {ending: pathlib.Path(place) / f"same.{ending}" for ending in ENDINGS}
        same["json"].write_bytes(text)
        quiet("gzip", "-kf", same["json"])
        quiet("zstd", "-qf6", same["json"], "-o", same["json.zst"])
        print("\n| read | us of CPU a pause | unpacked by zcat, zstdcat |\n|---|---|---|")
        for ending, path in same.items():
            read = 1e6 * cpu(lambda: quiet(gctrace, "analyze", path)) / pauses
            alone = 1e6 * cpu(lambda: unpacked(path)) / pauses
            print(f"| .{ending} | {read:.2f} | {alone:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[3:])
