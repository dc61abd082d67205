#!/usr/bin/env python3
"""Checks that files which comments and documents name exist in this repository.

    check-references.py [--self-test]

Checked are names that end in .rs, .c, .h, .py, .sh or .md, paths in backticks that start with a
folder of the repository, and the targets of relative links. A name may be relative to the
repository, to its file's folder or to any folder between (`layout.rs`, `python/layout.rs`), and may
contain wildcards. A link's section has to be a heading of its document. A function that a document names after its file and `::` has to be in that file. In a numbered
step that begins with a file (`1. `lib.rs`: ...`), each `Type::function` is in a file that the step names.
Files of CPython, Linux, NVIDIA and others, examples and placeholders are listed in OTHERS. Prints
FILE:LINE: NAME for each that does not exist; the exit code is then 1.
"""

import fnmatch
import io
import os
import re
import sys
import tempfile
import tokenize
from pathlib import Path

CHECKED = {".rs", ".c", ".h", ".py", ".sh", ".md", ".toml"}
# Folders with build results or installations, in .gitignore.
BUILT = {"target", "dist", "gpu-bundle", "gpu-results", "__pycache__"}
OPEN = {".cargo", ".ci", ".github"}

NAME = re.compile(r"(?<![\w/.$}>{-])((?:[\w.*-]+/)*[\w.*-]*[\w*]\.(?:rs|py|sh|md|c|h))(?![\w(/*{-]|\.\w)")
QUOTED = re.compile(r"`([\w-]+/[\w./*-]*[\w*/])`")
FUNCTION = re.compile(r"`([\w./-]+\.rs)::(\w+)`")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
SECTION = re.compile(r"\]\(([^)#\s:]*)#([\w-]+)\)")
STEP = re.compile(r"^\d+\. `([\w/.-]+\.(?:rs|h|c))`(.*?)(?=^\d+\. |^\s*$|\Z)", re.MULTILINE | re.DOTALL)
METHOD = re.compile(r"`(\w+)::(\w+)`")
URL = re.compile(r"\w+://\S*|#include\s*<[^>]*>")

OTHERS = [re.compile(f"(?:{pattern})$") for pattern in (
    # CPython
    r"(Include|InternalDocs|Modules|Objects|Python)/.*", r"cpython/\w+\.h", r"py\w+\.h", r"(descr|frame)?object\.h", r"dict-common\.h", r"gc(_free_threading)?\.c",
    r"(\w+object|obmalloc|preconfig)\.c", r"(asyncio|collections|email|json|re)/\w+\.py", r"(ast|random|reprlib)\.py",
    # Linux and its packages
    r"(arch|drivers|fs|include|kernel|mm|net|security)/.*\.[ch]", r"(sys|linux)/\w+\.h", r"cache\.h", r"src/exec_monitor\.c",
    # NVIDIA, PyTorch and others
    r"(cuda|cuda_runtime_api|cupti_\w+|driver_types|nccl|nvml)\.h", r"(fastapi|gunicorn|hta|sympy|torch)/.*\.py", r"_pytree\.py", r"source/unix/mio\.rs", r"terminal/buffers\.rs",
    # Examples of programs, and results of scripts.
    r"(\./)?(change|job|loader|small|train)\.py", r"gpu-bundle/.*", r"(gc-log|perf-log|table)\.md",
    # Placeholders
    r"[A-Z]+/.*", r"\.bpf\.c",
)]


def files(root):
    """Paths of all files below root, relative to it, without build results."""
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in BUILT and (not name.startswith(".") or name in OPEN)]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def tails(paths):
    """Every path of a file or folder, and its ends: of a/b/c also b/c, c, a/b, b and a."""
    found = set()
    for path in paths:
        parts = path.split("/")
        for stop in range(1, len(parts) + 1):
            found.update("/".join(parts[start:stop]) for start in range(stop))
    return found


def prose_of_python(text):
    """(line number, text) of comments and strings of several lines, the docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.lstrip("rbfRBF").startswith('"""')):
            for offset, line in enumerate(token.string.split("\n")):
                yield token.start[0] + offset, line


def prose(path, text):
    """(line number, text) of what is written for people: all of a document, the comments of a program."""
    if path.endswith(".py"):
        yield from prose_of_python(text)
        return
    comment = {".md": r"(.*)", ".sh": r"(?:^|\s)#(.*)", ".toml": r"(?:^|\s)#(.*)"}.get(
        os.path.splitext(path)[1], r"(?://|/\*|^\s*\*)(.*)")
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if inside:
            yield number, line
        elif found := re.search(comment, line):
            yield number, found[1]
        if path.endswith((".c", ".h")):
            inside = "/*" in line and "*/" not in line or inside and "*/" not in line


def exists(name, path, root, known):
    name = name.rstrip("/")
    if name in known or any(other.match(name) for other in OTHERS):
        return True
    if "*" in name:
        return any(fnmatch.fnmatchcase(one, name) for one in known)
    return (root / path).parent.joinpath(name).exists()


def sections(document):
    """What links to the headings of a document end in, as GitHub and GitLab derive it."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def wrong_steps(path, root, paths):
    """FILE:LINE: NAME for each function that is in no file of its step."""
    text = (root / path).read_text(encoding="utf-8")
    for step in STEP.finditer(text):
        names = [step[1], *re.findall(r"`([\w/.-]+\.(?:rs|h|c))`", step[2])]
        code = "".join((root / one).read_text(encoding="utf-8") for one in paths
                       if any(f"/{one}".endswith(f"/{name}") for name in names))
        for type_name, function in METHOD.findall(step[0]):
            if not re.search(rf"\bfn {function}\b", code):
                yield f"{path}:{text[:step.start()].count(chr(10)) + 1}: {type_name}::{function}"


def wrong(root):
    """FILE:LINE: NAME for each name that is no file."""
    root = Path(root)
    paths = sorted(files(root))
    known = tails(paths)
    folders = {path.split("/")[0] for path in paths if "/" in path}
    for path in paths:
        if os.path.splitext(path)[1] not in CHECKED:
            continue
        if path.endswith(".md"):
            yield from wrong_steps(path, root, paths)
        for number, line in prose(path, (root / path).read_text(encoding="utf-8", errors="replace")):
            line = URL.sub("", line)
            names = NAME.findall(line)
            names += [name for name in QUOTED.findall(line) if name.split("/")[0] in folders]
            if path.endswith(".md"):
                names += LINK.findall(line)
            for name in dict.fromkeys(names):
                if not exists(name, path, root, known):
                    yield f"{path}:{number}: {name}"
            for name, section in SECTION.findall(line) if path.endswith(".md") else ():
                document = (root / path).parent / name if name else root / path
                if document.suffix == ".md" and document.exists() and section not in sections(document):
                    yield f"{path}:{number}: {name}#{section}"
            for name, function in FUNCTION.findall(line) if path.endswith(".md") else ():
                file = root / name
                if not (file.exists() and re.search(rf"\bfn {function}\b", file.read_text(encoding="utf-8"))):
                    yield f"{path}:{number}: {name}::{function}"


def self_test():
    """A repository with right and wrong names: exactly the wrong ones are found."""
    contents = {
        "README.md": "See [the guide](docs/guide.md#start) and [none](docs/none.md), `lib/src`, `lib/gone`, https://a.org/b.md\n",
        "docs/guide.md": "# Start\n## At `b.rs`: go\n```\n# end\n```\n[1](#at-brs-go) [2](#end) [3](../README.md#start)\nRun `scripts/go.sh TRACE`, then `scripts/went.sh`.\n`lib/src/b.rs::main`, `lib/src/b.rs::mai`\n\n"
                         "1. `lib/src/b.rs`: `B::main` and `A::none`,\n   later.\n2. `a.rs`: `B::main`, of `src/b.rs`.\n3. `a.rs`: `B::main`\n",
        "scripts/go.sh": "#!/bin/sh\n# As lib/src/*.rs has it, not lib/test/*.rs.\necho gone.rs # and lost.rs\n",
        "lib/src/a.rs": "//! Beside b.rs, see also src/b.rs; src/c.rs.\nlet x = \"d.rs\"; // Objects/obmalloc.c\n",
        "lib/src/b.rs": "fn main() {} // `kernel/fork.c`, `e.rs`\n",
        "lib/c.c": "/* The types\n   of gone.h, */\nint f(void); /* and\n * a.rs */\n#include <stdio.h>\n",
        "lib/p.py": '"""What a.rs does,\nand absent.py.\n"""\nname = "x.py"  # y.py\n',
    }
    expected = ["README.md:1: lib/gone", "README.md:1: docs/none.md", "docs/guide.md:6: #end", "docs/guide.md:6: ../README.md#start",
                "docs/guide.md:7: scripts/went.sh", "docs/guide.md:8: lib/src/b.rs::mai", "docs/guide.md:10: A::none", "docs/guide.md:13: B::main", "lib/c.c:2: gone.h",
                "lib/p.py:2: absent.py", "lib/p.py:4: y.py", "lib/src/a.rs:1: src/c.rs", "lib/src/b.rs:1: e.rs",
                "scripts/go.sh:2: lib/test/*.rs", "scripts/go.sh:3: lost.rs"]
    with tempfile.TemporaryDirectory() as folder:
        for path, text in contents.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        found = list(wrong(folder))
    if sorted(found) != sorted(expected):
        sys.exit(f"check-references.py --self-test: expected {expected}, found {found}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif sys.argv[1:]:
        sys.exit(__doc__.strip())
    else:
        found = list(wrong(Path(__file__).resolve().parent.parent))
        for line in found:
            print(f"{line}: no such file, section or function")
        sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
