"""Small edits that make a packaged executable of CPython run from any folder. The code, its
addresses and its file offsets stay as packaged.

    elf_python.py relocate SOURCE TARGET LOADER    another loader, libraries in $ORIGIN/../l
    elf_python.py unfreeze BASE CORE MINOR         `python` of a freeze-core base

Not here: where the files come from (interpreters.sh).
"""

import os
import struct
import sys

# ELF-64 constants (System V ABI).
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_STRTAB, DT_SYMTAB, DT_RPATH, DT_DEBUG = 0, 5, 6, 15, 21
ET_EXEC = 2
EM_AARCH64 = 183
# `mov $imm32, %rdi`: how _start of a non-PIE executable passes main (glibc's start.S).
MOV_IMM32_RDI = b"\x48\xc7\xc7"
# Short enough for the space of the packaged loader's name.
RPATH = b"$ORIGIN/../l\0"


class Elf:
    """The few fields of a little-endian 64-bit ELF file that are needed here."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = data = bytearray(file.read())
        assert data[:6] == b"\x7fELF\x02\x01", "not a little-endian 64-bit ELF file"
        self.type, self.machine = struct.unpack_from("<HH", data, 16)
        self.entry, table = struct.unpack_from("<QQ", data, 24)
        size, count = struct.unpack_from("<HH", data, 54)
        self.segments = [
            (at, *struct.unpack_from("<IIQQQQQQ", data, at))
            for at in range(table, table + size * count, size)
        ]

    def segment(self, kind):
        """(header's place, file offset, address, size in the file)"""
        return next((s[0], s[3], s[4], s[6]) for s in self.segments if s[1] == kind)

    def offset(self, address):
        for _at, kind, _flags, offset, start, _physical, size, *_ in self.segments:
            if kind == PT_LOAD and start <= address < start + size:
                return address - start + offset
        raise ValueError("address %#x is not in the file" % address)

    def dynamic(self):
        """{tag: (entry's place, value)}; for DT_NULL the first."""
        _, offset, _, size = self.segment(PT_DYNAMIC)
        entries = {}
        for at in range(offset, offset + size, 16):
            tag, value = struct.unpack_from("<QQ", self.data, at)
            entries.setdefault(tag, (at, value))
        return entries

    def symbol(self, name):
        """Address of a defined dynamic symbol, or None. The symbol table ends
        where the string table begins, in every linker's layout."""
        dynamic = self.dynamic()
        table, strings = (self.offset(dynamic[tag][1]) for tag in (DT_SYMTAB, DT_STRTAB))
        wanted = name.encode() + b"\0"
        for at in range(table, strings, 24):
            name_at, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
            found = self.data[strings + name_at : strings + name_at + len(wanted)]
            if section and found == wanted:
                return value
        return None

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self.data)
        os.chmod(path, 0o755)


def relocate(source, target, loader):
    """Makes LOADER the program's interpreter and gives it a library path.

    The kernel reads the loader's name from the file, so the new name can be at the end, outside
    every segment. The old name's space takes the library path. Its DT_RPATH (which, unlike
    DT_RUNPATH, also applies to libraries of libraries) takes the entry of DT_DEBUG, which only
    debuggers read.
    """
    elf = Elf(source)
    header, room, address, size = elf.segment(PT_INTERP)
    assert len(RPATH) <= size, "no room for the library path"
    elf.data[room : room + len(RPATH)] = RPATH
    dynamic = elf.dynamic()
    entry, strings = dynamic[DT_DEBUG][0], dynamic[DT_STRTAB][1]
    struct.pack_into("<QQ", elf.data, entry, DT_RPATH, (address - strings) % 2**64)
    name = loader.encode() + b"\0"
    struct.pack_into("<Q", elf.data, header + 8, len(elf.data))
    struct.pack_into("<Q", elf.data, header + 32, len(name))
    elf.data += name
    elf.write(target)


def replace_main(elf, main):
    start = elf.offset(elf.entry)
    if elf.machine == EM_AARCH64:
        # `ldr x0, LITERAL`: its distance in words, 19 bits, starts at bit 5.
        for at in range(start, start + 64, 4):
            (instruction,) = struct.unpack_from("<I", elf.data, at)
            if instruction & 0xFF00001F == 0x58000000:
                struct.pack_into("<Q", elf.data, at + 4 * (instruction >> 5 & 0x7FFFF), main)
                return
        raise AssertionError("no `ldr x0, =main` in _start")
    at = elf.data.find(MOV_IMM32_RDI, start, start + 64)
    assert at >= 0, "no `mov $main, %rdi` in _start"
    struct.pack_into("<I", elf.data, at + len(MOV_IMM32_RDI), main)


def unfreeze(base, core, minor):
    """Writes CORE/bin/python: an ordinary `python` made from BASE, the program that frozen programs
    start with. CORE/lib/pythonMINOR contains the standard library.

    In a base that exports Py_BytesMain, _start passes the address of `main` to the C library, which
    becomes that of Py_BytesMain. Any other base imports `__startup__`, searching
    lib/ next to itself, first the folder that lib/library.dat names.
    """
    elf = Elf(base)
    main = elf.symbol("Py_BytesMain")
    if main is not None:
        assert elf.type == ET_EXEC, "only non-PIE bases are supported"
        replace_main(elf, main)
    else:
        library = os.path.join(core, "lib")
        os.symlink("../lib", os.path.join(core, "bin", "lib"))
        with open(os.path.join(library, "library.dat"), "w") as file:
            file.write("python" + minor)
        startup = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "frozen_startup.py")
        os.symlink(startup, os.path.join(library, "python" + minor, "__startup__.py"))
    elf.write(os.path.join(core, "bin", "python"))


if __name__ == "__main__":
    {"relocate": relocate, "unfreeze": unfreeze}[sys.argv[1]](*sys.argv[2:])
