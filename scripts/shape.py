#!/usr/bin/env python3
"""Counts the shape of the code: files, lines, types, circles, silent defaults.

    shape.py [FOLDER]               default: this checkout
    shape.py [FOLDER] --list WHAT   circles, arrows, small, rooms, names (used twice or more) or pairs, by name
    shape.py [FOLDER] --check       exit code 1 if there is a circle, or a room without a place in the order
    shape.py --self-test            shows that the check finds both

Rust sources of the five folders; tests (tests/, benches/, examples/, fuzz/, files and modules named
tests) are left out. Lines are code lines: neither blank nor comment. Prints a Markdown table with one column.

A circle is a group of files of one crate that name each other (`use`, `pub use`, or a path with `crate::` or `super::`
in an expression) directly or over others. A module and its parent are one thing seen from two sides, which is how Rust
nests modules: names between them do not count.

A room is a module at the root of a crate with all that is below it. docs/architecture.md lists the rooms of the largest
crates from the ceiling to the floor ("Order of the rooms"). An arrow runs from one room to another that it names with
`crate::`, in imports or elsewhere; it is upward if the other is listed before it.

A pair is two structs that have four or more members of the same name and type.
"""

import argparse
import collections
import contextlib
import io
import itertools
import pathlib
import re
import sys
import tempfile

FOLDERS = ("tracer", "ebpf", "heap", "probes", "analysis", "scripts")
WORDS = r"told|said|says?|tells?|moments?|stretch(?:es)?|nobody|somebody|from within|give or take|so (?:much|many|long)"
WORDS += r"|for nothing|stood still|looks? at every|mend(?:ed|s)?|besides"
# An indented `type` belongs to a trait, which names it.
TYPE = re.compile(r"^(?:[ \t]*(?:pub(?:\([^)]*\))? )?(?:struct|enum|union|trait)|(?:pub(?:\([^)]*\))? )?type) (\w+)", re.MULTILINE)
DEFAULTS = re.compile(r"unwrap_or\((?:0|[\w:]*MAX|NONE)\)|unwrap_or_default\(\)|map_or\((?:0|[\w:]*MAX|NONE),")
DOC = re.compile(r"((?:^[ \t]*///.*\n)+)(?:[ \t]*#\[.*\n)*[ \t]*pub (?!\()", re.MULTILINE)
STRUCT = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))? )?struct (\w+)[^;{(]*\{\n(.*?)^[ \t]*\}", re.MULTILINE | re.DOTALL)
MEMBER = re.compile(r"^(?:pub(?:\([^)]*\))? )?(\w+: .+?),?$", re.MULTILINE)
TESTS = re.compile(r"(^|/)(tests|benches|examples|fuzz)(/|\.rs$)|_tests?\.rs$")
SMALL = 40  # code lines


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
    """Groups of files of a crate that import each other in a circle, as the module's text defines it."""
    modules = modules_of(files)
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
    return [sorted(modules[module] for module in group) for group in components(edges) if len(group) > 1]


def modules_of(files):
    """(crate, path of the module): file; the path of a crate's root is empty."""
    modules = {}
    for name in files:
        crate, found, inside = name.partition("/src/")
        if found:
            module = inside[:-3].removesuffix("/mod").replace("/", "::")
            modules[(crate, "" if module in ("lib", "main") else module)] = name
    return modules


def rooms(files):
    """(crate, room): code lines; the room of a crate's root is empty."""
    lines = collections.Counter()
    for (crate, module), name in modules_of(files).items():
        lines[(crate, module.split("::")[0])] += len(code(files[name]))
    return lines


def order(root):
    """crate: its rooms from the ceiling to the floor, by docs/architecture.md."""
    text = (root / "docs" / "architecture.md").read_text()
    block = re.search(r"^### Order of the rooms\n.*?^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    listed = collections.defaultdict(list)
    crate = None
    for line in block[1].splitlines() if block else []:
        head, colon, names = line.rpartition(":")
        crate = head.strip() if colon else crate
        listed[crate] += names.split()
    return listed


def arrows(files):
    """(crate, room, room that it names): the files that do."""
    lines = rooms(files)
    found = collections.defaultdict(set)
    for (crate, module), name in modules_of(files).items():
        room = module.split("::")[0]
        text = "\n".join(code(files[name]))
        named = {path.split("::")[0] for base, path in imports(files[name]) if base == "crate"}
        named |= set(re.findall(r"\bcrate::(\w+)", text))
        above = {path.split("::")[0] for base, path in imports(files[name]) if base.count("super") == module.count("::") + 1}
        for other in named | above:
            if room and other != room and (crate, other) in lines:
                found[(crate, room, other)].add(name)
    return found


def upward(files, listed):
    place = {(crate, room): at for crate, names in listed.items() for at, room in enumerate(names)}
    return {
        (crate, room, other): names
        for (crate, room, other), names in arrows(files).items()
        if place.get((crate, other), len(place)) < place.get((crate, room), -1)
    }


def unordered(files, listed):
    """Rooms without a place in the order, and places without a room."""
    there = {(crate, room) for crate, room in rooms(files) if room and crate in listed}
    places = {(crate, room) for crate, names in listed.items() for room in names}
    return sorted(there ^ places)


def imports(text):
    """`crate` or `super`s, and the path below it, of everything named: a list in braces stands for its items."""
    for line in code(text):
        if not re.match(r"(?:pub(?:\([^)]*\))? )?use ", line):
            yield from re.findall(r"\b(crate|super(?:::super)*)::((?:[a-z_]\w*::)*\w+)", line)
    for base, path, items in re.findall(r"^(?:pub(?:\([^)]*\))? )?use (crate|super(?:::super)*)::([\w:]*)(?:\{([^}]*)\})?", text, re.MULTILINE):
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
    types = named_types(files)
    prose = [path.read_text() for path in (root / "docs").glob("*.md") if path.name != "glossary.md"] + list(files.values())
    return [
        ("files", len(files)),
        ("code lines", len(lines)),
        ("longest file, lines", max(text.count("\n") for text in files.values())),
        ("types", sum(map(len, types.values()))),
        ("type names used twice or more", sum(1 for places in types.values() if len(places) > 1)),
        ("pairs of structs that share four or more members", len(pairs(files))),
        ("`saturating_*`", len(re.findall(r"\bsaturating_\w+", joined))),
        ("silent defaults (`unwrap_or(0\\|MAX\\|NONE)`, `unwrap_or_default()`, `map_or(0, ..)`)", len(DEFAULTS.findall(joined))),
        ("asserts (`assert*!`, `debug_assert*!`)", len(re.findall(r"\b(?:debug_)?assert\w*!", joined))),
        ("circles between files", len(circles(files))),
        ("arrows between the rooms of a crate: of these upward", f"{len(arrows(files)):,}: {len(upward(files, order(root)))}"),
        (f"files under {SMALL} code lines", len(small(files))),
        ("doc comments of public items, of one to five words", sum(map(short_docs, files.values()))),
        ("words that the glossary replaces, in code and docs", sum(len(re.findall(rf"\b(?:{WORDS})\b", text)) for text in prose)),
    ]


def named_types(files):
    """Name: the files with a type of that name. `elsewhere.rs` has the types of its neighbor for other systems."""
    types = collections.defaultdict(list)
    for name, text in files.items():
        if not name.endswith("/elsewhere.rs"):
            for found in TYPE.findall(text):
                types[found].append(name)
    return types


def pairs(files):
    """(members in common, name and file of both) of structs that share four or more, most first."""
    structs = [
        (found[1], name, set(MEMBER.findall("\n".join(code(found[2])))))
        for name, text in files.items()
        for found in STRUCT.finditer(text)
    ]
    found = (
        (sorted(member.split(":")[0] for member in members & others), (one, name), (other, elsewhere))
        for (one, name, members), (other, elsewhere, others) in itertools.combinations(structs, 2)
    )
    return sorted((pair for pair in found if len(pair[0]) >= 4), key=lambda pair: -len(pair[0]))


def small(files):
    return sorted((len(code(text)), name) for name, text in files.items() if len(code(text)) < SMALL)


def listing(root, what):
    files = dict(sources(root))
    if what == "circles":
        for group in circles(files):
            print(" -- ".join(group))
    elif what == "arrows":
        for (crate, room, other), names in sorted(upward(files, order(root)).items()):
            print(f"{crate}: {room} -> {other}: {' '.join(sorted(names))}")
    elif what == "names":
        for name, places in sorted(named_types(files).items()):
            if len(places) > 1:
                print(f"{name}: {' '.join(places)}")
    elif what == "pairs":
        for members, (one, name), (other, elsewhere) in pairs(files):
            print(f"{one} ({name}), {other} ({elsewhere}): {', '.join(members)}")
    elif what == "small":
        for lines, name in small(files):
            print(f"{lines:3} {name}")
    else:
        for (crate, room), lines in sorted(rooms(files).items()):
            print(f"{lines:6,} {crate}: {room or 'its root'}")


def check(root):
    files = dict(sources(root))
    found = [f"circle of imports: {' -- '.join(group)}" for group in circles(files)]
    found += [
        f"{crate}: {room} is a room or has a place in docs/architecture.md (Order of the rooms), not both"
        for crate, room in unordered(files, order(root))
    ]
    for line in found:
        print(f"shape.py: {line}")
    return 1 if found else 0


def self_test():
    tree = {
        "docs/architecture.md": "### Order of the rooms\n\n```\ntracer: top record\n   files\n```\n",
        "tracer/src/main.rs": "mod files;\nmod record;\nmod top;\n",
        "tracer/src/top.rs": "use crate::record::RecordedRun;\n",
        # A parent and its child.
        "tracer/src/record.rs": "mod plan;\npub(crate) use plan::RecordedRun;\nuse crate::files;\n",
        "tracer/src/record/plan.rs": "use super::record;\npub(crate) struct RecordedRun;\n",
        "tracer/src/files.rs": "fn write() {}\n",
    }
    changes = [
        ({}, 0, 0),
        ({"tracer/src/files.rs": "fn write() { crate::top::draw() }\n"}, 1, 1),
        ({"tracer/src/files.rs": "/// As `crate::top::draw()`.\nfn write() {}\n"}, 0, 0),
        ({"tracer/src/files.rs": "pub(crate) use crate::{\n    record as recorded,\n};\n"}, 1, 1),
        ({"tracer/src/record/plan.rs": "use super::super::top;\n", "tracer/src/top.rs": "use crate::record::plan;\n"}, 1, 1),
        ({"tracer/src/record/plan.rs": "use super::end;\n", "tracer/src/record/end.rs": "use super::plan::RecordedRun;\n"}, 1, 0),
        ({"tracer/src/attic.rs": "fn none() {}\n"}, 1, 0),
    ]
    for change, code_expected, upward_expected in changes:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            root = pathlib.Path(folder)
            for name, text in (tree | change).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found = check(root), len(upward(dict(sources(root)), order(root)))
        assert found == (code_expected, upward_expected), (change, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", choices=("circles", "arrows", "small", "rooms", "names", "pairs"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    asked = parser.parse_args()
    if asked.self_test:
        return self_test()
    if asked.check:
        return check(asked.folder)
    if asked.list:
        return listing(asked.folder, asked.list)
    print("| | |\n|---|---|")
    for name, value in table(asked.folder):
        print(f"| {name} | {value if isinstance(value, str) else f'{value:,}'} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
