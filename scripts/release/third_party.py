#!/usr/bin/env python3
"""Writes the licenses of everything that gctrace's programs contain.

    cargo metadata --format-version 1 ... | scripts/release/third_party.py

Which crates: those that gctrace and its two libraries depend on, but not those that only building
or testing needs. The texts are the files in the crates' own folders; a crate that contains other
projects' code, such as libbpf, libelf and zlib, has theirs in subfolders.
"""

import json
import os
import re
import sys

OURS = ("gctrace", "gctrace-inject", "gctrace-simgpu")
TEXT = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$", re.IGNORECASE)
CODE = (".c", ".h", ".py", ".rs", ".sh", ".toml")
# Of libelf's parts, and test data: folders of no code that is linked.
SKIPPED = {"tests", "test", "benches", "examples", "fuzz", "target", ".git"}
HEAD = """Third-party software in gctrace

gctrace itself is licensed under MIT OR Apache-2.0. Its program and its libraries contain the
crates below, compiled from unchanged sources, and Rust's standard library (MIT OR Apache-2.0,
https://www.rust-lang.org). Sources: each crate's version at the address given. libelf is linked
statically under the GNU LGPL, version 3 or later: gctrace's own sources and scripts/release.sh link
it with a changed libelf. inferno is licensed under CDDL-1.0: its sources are unchanged.
zstd is used under its BSD license, not under the GPL.
"""


def dependencies(metadata):
    """Packages linked into the programs, without the workspace's own, by name and version."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    waiting = [key for key in members if packages[key]["name"] in OURS]
    reached = set()
    while waiting:
        key = waiting.pop()
        if key in reached:
            continue
        reached.add(key)
        for dependency in nodes[key]["deps"]:
            linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if linked and not macro:
                waiting.append(dependency["pkg"])
    found = (packages[key] for key in reached - members)
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(folder):
    """Path below the folder and content of each license text."""
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(files):
            if TEXT.match(name) and not name.endswith(CODE):
                whole = os.path.join(path, name)
                with open(whole, encoding="utf-8", errors="replace") as file:
                    yield os.path.relpath(whole, folder), file.read().strip("\n")


def main():
    metadata = json.load(sys.stdin)
    numbers = {}
    bodies = []
    print(HEAD)
    for package in dependencies(metadata):
        license_ = package["license"] or f"see {package['license_file']}"
        print(f"{package['name']} {package['version']}: {license_}")
        if package["repository"]:
            print(f"    {package['repository']}")
        for path, text in texts(os.path.dirname(package["manifest_path"])):
            key = " ".join(text.split())
            if key not in numbers:
                numbers[key] = len(numbers) + 1
                bodies.append(text)
            print(f"    {path}: text {numbers[key]}")
    for number, text in enumerate(bodies, 1):
        print(f"\n{'=' * 80}\nText {number}\n{'=' * 80}\n{text}")


if __name__ == "__main__":
    main()
