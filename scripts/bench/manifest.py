"""The interpreters of scripts/interpreters.sh, by name."""

import os
import pathlib

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


def interpreters():
    """Name, version, build and program of each; a missing one has no version."""
    manifest = os.environ.get("GCTRACE_INTERPRETERS", CHECKOUT / ".interpreters/manifest.tsv")
    rows = [line.split("\t") for line in pathlib.Path(manifest).read_text().splitlines() if line[:1] != "#"]
    return [(name, version, traits.replace(",", ", "), path) for name, version, traits, path, *_ in rows]


def program(name):
    """The program of an interpreter of this name; otherwise `name` is a program itself."""
    known = {own: path for own, _, _, path in interpreters()} if "/" not in name else {}
    return known.get(name, name)
