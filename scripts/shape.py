#!/usr/bin/env python3
"""Counts the shape of the code: files, lines, types, circles, silent defaults.

    shape.py [FOLDER]          default: this checkout

Rust sources of the five folders; tests (tests/, benches/, examples/, fuzz/, compare/, files and modules named tests) are
left out. Lines are code lines: neither blank nor comment. Prints a Markdown table with one column.
"""

import collections
import pathlib
import re
import sys

FOLDERS = ("tracer", "ebpf", "probes", "analysis", "scripts")
WORDS = r"told|said|says?|tells?|moments?|stretch(?:es)?|nobody|somebody|from within|give or take|so (?:much|many|long)"
WORDS += r"|for nothing|stood still|looks? at every|mend(?:ed|s)?|besides"
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|union|trait|type) (\w+)", re.MULTILINE)
DEFAULTS = re.compile(r"unwrap_or\((?:0|[\w:]*MAX|NONE)\)|unwrap_or_default\(\)|map_or\((?:0|[\w:]*MAX|NONE),")
DOC = re.compile(r"((?:^[ \t]*///.*\n)+)(?:[ \t]*#\[.*\n)*[ \t]*pub (?!\()", re.MULTILINE)
TESTS = re.compile(r"(^|/)(tests|benches|examples|fuzz|compare)(/|\.rs$)|_tests?\.rs$")


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.rs")):
            name = path.relative_to(root).as_posix()
            if not TESTS.search(name) and "/target/" not in name:
                yield name, without_test_module(path.read_text())


def without_test_module(text):
    """Leaves out `#[cfg(test)] mod tests { ... }` at a file's end."""
    return re.split(r"^#\[cfg\(test\)\]\s*\nmod \w+ \{", text, maxsplit=1, flags=re.MULTILINE)[0]


def code(text):
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("//")]


def short_docs(text):
    """Doc comments of public items of one to five words."""
    blocks = (re.sub(r"^[ \t]*//[/!]", "", block, flags=re.MULTILINE).split() for block in DOC.findall(text))
    return sum(1 for words in blocks if 0 < len(words) <= 5)


def circles(files):
    """Groups of files of a crate that refer to each other in a circle by `use crate::`."""
    modules = {}
    for name in files:
        crate, found, inside = name.partition("/src/")
        if found:
            module = inside[:-3].removesuffix("/mod").replace("/", "::")
            modules[(crate, "" if module in ("lib", "main") else module)] = name
    edges = collections.defaultdict(set)
    for (crate, module), name in modules.items():
        for base, rest in imports(files[name]):
            parts = rest.split("::")
            if base != "crate":
                parent = module.split("::")[: -base.count("super") or None]
                parts = parent + parts
            while parts and (crate, "::".join(parts)) not in modules:
                parts.pop()
            target = "::".join(parts)
            # A module and its own parts, or its parent, are one thing seen from two sides.
            if target and not (module + "::").startswith(target + "::") and not (target + "::").startswith(module + "::"):
                edges[(crate, module)].add((crate, target))
    return [group for group in components(edges) if len(group) > 1]


def imports(text):
    """`crate` or `super`s, and the path below it, of everything imported: a list in braces stands for its items."""
    for base, path, items in re.findall(r"^use (crate|super(?:::super)*)::([\w:]*)(?:\{([^}]*)\})?", text, re.MULTILINE):
        for item in re.findall(r"\w+", re.sub(r" as \w+", "", items)) or [""]:
            yield base, (path + item).removesuffix("::")


def components(edges):
    """Strongly connected components (Tarjan, 1972), iteratively."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    found.append(group)
    return found


def table(root):
    files = dict(sources(root))
    lines = [line for text in files.values() for line in code(text)]
    joined = "\n".join(lines)
    names = collections.Counter(name for text in files.values() for name in TYPE.findall(text))
    prose = [path.read_text() for path in (root / "docs").glob("*.md") if path.name != "glossary.md"] + list(files.values())
    return [
        ("files", len(files)),
        ("code lines", len(lines)),
        ("longest file, lines", max(text.count("\n") for text in files.values())),
        ("types", sum(names.values())),
        ("type names used twice or more", sum(1 for count in names.values() if count > 1)),
        ("`saturating_*`", len(re.findall(r"\bsaturating_\w+", joined))),
        ("silent defaults (`unwrap_or(0\\|MAX\\|NONE)`, `unwrap_or_default()`, `map_or(0, ..)`)", len(DEFAULTS.findall(joined))),
        ("asserts (`assert*!`, `debug_assert*!`)", len(re.findall(r"\b(?:debug_)?assert\w*!", joined))),
        ("circles between files", len(circles(files))),
        ("doc comments of public items, of one to five words", sum(map(short_docs, files.values()))),
        ("words that the glossary replaces, in code and docs", sum(len(re.findall(rf"\b(?:{WORDS})\b", text)) for text in prose)),
    ]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    print("| | |\n|---|---|")
    for name, value in table(root):
        print(f"| {name} | {value:,} |")


if __name__ == "__main__":
    main()
