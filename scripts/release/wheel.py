#!/usr/bin/env python3
"""Finishes a wheel that maturin made.

    scripts/release/wheel.py WHEEL PROGRAM CHECKOUT OUT

Checks that it contains PROGRAM, takes the path of CHECKOUT out of the bill of materials, and writes
OUT/NAME of the wheel: sorted, with the time SOURCE_DATE_EPOCH, so that the same contents give the
same bytes.
"""

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import time
import zipfile


def digest(content):
    """As RECORD has it."""
    value = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + value.rstrip(b"=").decode()


def record(files):
    """Content of RECORD, which lists itself without a digest."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for name, (content, _) in sorted(files.items()):
        row = ["", ""] if name.endswith(".dist-info/RECORD") else [digest(content), len(content)]
        writer.writerow([name, *row])
    return lines.getvalue().encode()


def main():
    wheel, program, checkout, out = sys.argv[1:]
    stamp = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: (archive.read(info), info.external_attr >> 16)
                 for info in archive.infolist() if not info.is_dir()}
    for name, (content, mode) in files.items():
        if name.endswith(".data/scripts/gctrace"):
            with open(program, "rb") as file:
                if content != file.read():
                    sys.exit(f"{wheel}: {name} is not {program}")
        elif name.endswith(".cyclonedx.json"):
            files[name] = (content.replace(f"path+file://{checkout}/".encode(), b"path+file:///"), mode)
    types = [sys.executable, f"{checkout}/packaging/python/report_types.py"]
    files["gctrace/_report.py"] = (subprocess.run(types, check=True, stdout=subprocess.PIPE).stdout, 0o100644)
    (listing,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    files[listing] = (record(files), files[listing][1])
    with zipfile.ZipFile(os.path.join(out, os.path.basename(wheel)), "w") as archive:
        # The format recommends the metadata last.
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            content, mode = files[name]
            info = zipfile.ZipInfo(name, stamp)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = (0o100755 if mode & 0o111 else 0o100644) << 16
            archive.writestr(info, content, compresslevel=9)


if __name__ == "__main__":
    main()
