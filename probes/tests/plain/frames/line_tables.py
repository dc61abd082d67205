"""Reports, for the code objects of some modules, the line of each instruction."""
import dis
import importlib.util
import json
import sys
import types

MODULES = "argparse email.message inspect pickle tarfile tokenize unittest.case".split()

# Lines far apart, back and forth, and code with no line of its own.
SYNTHETIC = (
    "def far(a):\n    x = (a,"
    + "\n" * 400
    + "a.b("
    + "\n" * 150
    + "a),\n a)\n"
    + "\n" * 70000
    + "    try:\n        with a as b: y = [c for c in b if c]\n    finally:\n        x = lambda: (yield)\n    return y\n"
    + "def wide(a):\n    return ["
    + ", ".join("a[%d]" % index for index in range(150))
    + ",\n"
    + "a]\n"
    + "async def waits(a):\n    async with a as b:\n        async for c in b: await c\n"
    + "def matched(a):\n    while a:\n        if a > 1: continue\n        elif a: break\n    else:\n        return\n"
)


def ranges(code):
    if hasattr(code, "co_lines"):
        return list(code.co_lines())
    starts = list(dis.findlinestarts(code))
    ends = [start for start, _ in starts[1:]] + [len(code.co_code)]
    return [(start, end, line) for (start, line), end in zip(starts, ends)]


def tell(code):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    facts = {
        "name": "%s in %s" % (code.co_name, code.co_filename),
        "first_line": code.co_firstlineno,
        "table": list(table),
        "size": len(code.co_code),
        "ranges": ranges(code),
    }
    print(json.dumps(facts))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            tell(constant)


print(json.dumps(sys.version_info[:2]))
for name in MODULES:
    spec = importlib.util.find_spec(name)
    if spec is None:
        print("no module " + name, file=sys.stderr)
        continue
    tell(spec.loader.get_code(name))
tell(compile(SYNTHETIC, "synthetic", "exec"))
