#!/usr/bin/env python3
"""Creates the file system that a kernel of scripts/kernels.sh boots with.

    kernel_image.py IMAGE < LIST

LIST names files and folders, one a line; each goes to the same place in the image, with the folders
and links on the way to it and, for programs, the libraries that they load. `SOURCE<TAB>PLACE` puts
a file elsewhere, or all that a folder contains, its links as they are. IMAGE is an uncompressed cpio archive ("newc"), which every Linux accepts as its
initramfs and unpacks in seconds, even emulated.
"""

import os
import re
import stat
import subprocess
import sys

# Not imported by any test: four fifths of an installed CPython.
LEFT_OUT = {"test", "tests", "idlelib", "ensurepip", "site-packages", "dist-packages", "lib2to3", "tkinter", "turtledemo",
            "pydoc_data", "lib-tk", "share", "include"}


def left_out(name):
    return name in LEFT_OUT or name.startswith("config-3") or name.endswith((".a", ".pyc.tmp"))


class Image:
    """The contents, by path: each path once, folders before their contents."""

    def __init__(self):
        self.sources = {}

    def add(self, source, place):
        """Adds a file, folder or link with everything on the way to it, and the target of a
        link."""
        place = self.resolved_folder(os.path.normpath(place))
        if place in self.sources:
            return
        self.sources[place] = source
        if os.path.islink(source):
            target = os.path.join(os.path.dirname(place), os.readlink(source))
            if os.path.exists(target):
                self.add(target, target)

    def resolved_folder(self, place):
        """The path with its parent folders added, links among them resolved."""
        folder, name = os.path.split(place)
        if folder != "/":
            self.add(folder if os.path.isdir(folder) else "/", folder)
            folder = os.path.realpath(folder)
        return os.path.join(folder, name)

    def add_libraries(self):
        """Adds the libraries that the programs in the image load."""
        for library in libraries([source for source in self.sources.values() if is_program(source)]):
            self.add(library, library)

    def add_tree(self, top):
        self.add(top, top)
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(name for name in folders if not left_out(name))
            for name in folders + sorted(files):
                path = os.path.join(folder, name)
                if not left_out(name):
                    self.add(path, path)

    def add_contents(self, top, place):
        """Adds what a folder contains: the system of another machine."""
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(name for name in folders if not left_out(name))
            for name in folders + sorted(files):
                source = os.path.join(folder, name)
                if not left_out(name):
                    self.sources.setdefault(os.path.normpath(os.path.join(place, os.path.relpath(source, top))), source)

    def write(self, path):
        with open(path, "wb") as out:
            for number, (place, source) in enumerate(sorted(self.sources.items()), start=1):
                write_entry(out, number, place.lstrip("/"), source)
            write_header(out, 0, "TRAILER!!!", 0, 0)


def write_entry(out, number, name, source):
    found = os.lstat(source)
    mode, content = found.st_mode, b""
    if stat.S_ISLNK(mode):
        content = os.readlink(source).encode()
    elif stat.S_ISREG(mode):
        with open(source, "rb") as file:
            content = file.read()
    elif not stat.S_ISDIR(mode):
        return
    write_header(out, number, name, mode, len(content))
    out.write(content)
    out.write(b"\0" * (-len(content) % 4))


def write_header(out, number, name, mode, size):
    """Documentation/driver-api/early-userspace/buffer-format.rst of the kernel; owned by root, one link."""
    encoded = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(encoded), 0]
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    out.write(header + b"\0" * (-len(header) % 4))


def is_program(path):
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(programs):
    """The libraries that the loader would load for them, and the loader itself."""
    listed = subprocess.run(["ldd", *programs], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return sorted(path for path in set(re.findall(r"(/\S+) \(0x", listed.stdout)) if os.path.exists(path))


def main():
    image = Image()
    for line in filter(None, sys.stdin.read().splitlines()):
        source, _, place = line.partition("\t")
        if place and os.path.isdir(source):
            image.add_contents(source, place)
        elif place:
            image.add(source, place)
        else:
            image.add_tree(source)
    image.add_libraries()
    image.write(sys.argv[1])


if __name__ == "__main__":
    main()
