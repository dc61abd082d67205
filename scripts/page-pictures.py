#!/usr/bin/env python3
"""Makes the pictures of pages in docs/pictures, of `gctrace demo` and examples/train.py.

    scripts/page-pictures.py [--gctrace PROGRAM] [--out FOLDER]

Needs Chromium, and root for what only kernel probes record. Times differ from run to run, so the pictures do too.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests/python"))
import browser  # noqa: E402

# Picture -> page, width, height, dark, what of it, and what the script is asked for.
PICTURES = {
    "page-wide": ("train", 1100, 1260, False, None, ""),
    "page-gpu": ("demo", 900, 620, True, "#idle", ""),
    "page-zoomed": ("train", 900, 700, True, "#time", "#longest=1"),
    "page-narrow": ("train", 360, 900, False, None, ""),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gctrace", default=str(CHECKOUT / "target/debug/gctrace"))
    parser.add_argument("--out", default=str(CHECKOUT / "docs/pictures"), type=pathlib.Path)
    options = parser.parse_args()
    page = browser.Browser()
    with tempfile.TemporaryDirectory() as folder:
        def gctrace(*arguments):
            subprocess.run([options.gctrace, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)

        gctrace("demo", "-q", "-o", "demo.json")
        # By a relative path: the page shows the command.
        shutil.copytree(CHECKOUT / "examples", f"{folder}/examples")
        gctrace("record", "-q", "-o", "train.json", "--", "python3", "examples/train.py")
        for name in ("demo", "train"):
            gctrace("report", f"{name}.json", "-o", f"{name}.html")
        for name, (of, width, height, dark, selector, wanted) in PICTURES.items():
            page.size(width, height, dark)
            page.open(f"{folder}/{of}.html", wanted)
            path = options.out / f"{name}.png"
            page.picture(path, selector, height)
            print(path, f"{path.stat().st_size / 1000:.0f} KB")
    page.close()


if __name__ == "__main__":
    main()
