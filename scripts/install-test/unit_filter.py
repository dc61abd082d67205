#!/usr/bin/env python3
"""Runs a command under the SystemCallFilter= of a unit, as systemd would.

    unit_filter.py UNIT COMMAND ARG...

The groups are those of systemd-analyze, the filter is that of libseccomp, which systemd uses too. Only for
units whose first filter names what is refused. It takes no_new_privs or CAP_SYS_ADMIN.
"""

import ctypes
import errno
import os
import pathlib
import subprocess
import sys

ALLOW = 0x7FFF0000  # SCMP_ACT_ALLOW and SCMP_ACT_ERRNO of libseccomp
ERRNO = 0x00050000


def groups():
    """Names of each group of calls; some are names of groups."""
    found, group = {}, None
    listing = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        if line.startswith("@"):
            group = found.setdefault(line.strip(), [])
        elif line.startswith(" ") and not line.strip().startswith("#") and group is not None:
            group.append(line.strip())
    return found


def calls(names, known):
    for name in names:
        if name.startswith("@"):
            yield from calls(known[name], known)
        else:
            yield name


def refused(unit):
    lines = pathlib.Path(unit).read_text().splitlines()
    filters = [line.removeprefix("SystemCallFilter=") for line in lines if line.startswith("SystemCallFilter=")]
    assert filters and filters[0].startswith("~") and "SystemCallErrorNumber=EPERM" in lines
    known, result = groups(), set()
    for one in filters:
        named = set(calls(one.removeprefix("~").split(), known))
        result = result | named if one.startswith("~") else result - named
    return result


def main():
    unit, *command = sys.argv[1:]
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(ALLOW)))
    for name in sorted(refused(unit)):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        # Below 0: not of this architecture.
        if number >= 0:
            assert seccomp.seccomp_rule_add(context, ctypes.c_uint32(ERRNO | errno.EPERM), number, 0) == 0, name
    status = seccomp.seccomp_load(context)
    assert status == 0, os.strerror(-status)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
