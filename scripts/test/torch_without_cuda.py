"""Lets PyTorch's usual Linux wheel run on the CPU without NVIDIA's libraries.

    python torch_without_cuda.py

That wheel links against libraries of several gigabytes that training on the CPU never calls; but
the loader requires each of them, with every symbol, before `import torch` returns. This writes an
empty library for each missing one, with just the requested symbols, next to PyTorch's own. Run it
with the python of the environment, after installing torch without its dependencies. Calling CUDA
then crashes instead of failing properly: for tests on the CPU only.

Needs cc, ldd, nm and readelf. Not here: what is installed (torch-venv.sh).
"""

import pathlib
import re
import subprocess
import sysconfig
import tempfile


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def linked(libraries):
    """({missing names}, {paths of the libraries that were found})"""
    missing, found = set(), set()
    for library in libraries:
        for line in output("ldd", str(library)).splitlines():
            name, arrow, target = line.strip().partition(" => ")
            if name == "libcuda.so.1":  # the driver's, which PyTorch opens if there is one
                continue
            if arrow and target == "not found":
                missing.add(name)
            elif arrow:
                found.add(target.split(" (")[0])
    return missing, found


def symbols(library, *options):
    """{(name, version or "")} of the dynamic symbol table, without weak references, which may stay
    unresolved."""
    lines = map(str.split, output("nm", "-D", *options, str(library)).splitlines())
    names = (line[-1].replace("@@", "@") for line in lines if line[-2] not in "wv")
    return {tuple(name.partition("@")[::2]) for name in names}


def versions_of(library):
    """{version: name of the library that must provide it}"""
    file, versions = None, {}
    for line in output("readelf", "-VW", str(library)).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags", line):
            versions[match[1]] = file
    return versions


def asked_of_missing(libraries, missing, found):
    """{library: {(symbol, version)}}; symbols without a version go to the first."""
    defined = {name for path in {*found, *map(str, libraries)} for name, _ in symbols(path, "--defined-only")}
    asked = {name: set() for name in sorted(missing)}
    first = next(iter(asked))
    for library in libraries:
        owners = versions_of(library)
        for name, version in symbols(library, "--undefined-only"):
            owner = owners.get(version) if version else first
            if owner in asked and name not in defined and not name.startswith(("Py", "_Py")):
                asked[owner].add((name, version))
    return asked


def write_empty_library(path, wanted):
    versions = sorted({version for _, version in wanted if version})
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "empty.c"), pathlib.Path(folder, "versions")
        source.write_text("".join(f"int {name};\n" for name, _ in sorted(wanted)))
        script.write_text("".join(
            "%s { %s };\n" % (version, " ".join(f"{name};" for name, of in wanted if of == version))
            for version in versions
        ))
        options = [f"-Wl,--version-script={script}"] if versions else []
        output("cc", "-shared", "-nostdlib", "-w", "-fno-builtin", "-o", str(path),
               f"-Wl,-soname,{path.name}", *options, str(source))


def main():
    packages = pathlib.Path(sysconfig.get_path("platlib"))
    folder = packages / "torch" / "lib"
    libraries = sorted(folder.glob("*.so"))
    missing, found = linked(libraries)
    if not missing:
        return
    for name, wanted in asked_of_missing(libraries, missing, found).items():
        write_empty_library(folder / name, wanted)
        print(f"empty {name} with {len(wanted)} symbols")


if __name__ == "__main__":
    main()
