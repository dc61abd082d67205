"""Writes this interpreter's heap as a .gcheap file, by the gc module alone and docs/heap-format.md.

A second implementation of the format, and heaps whose truth is known. Standard library only.
"""

import gc
import json
import os
import struct
import sys
import time
import types
import zlib

MAGIC, VERSION, BLOCK = b"\x89gcheap\n", 1, 1 << 20
UNTRACKED = 5
IMMORTAL = 1 << 29
# What this module refers to an object by while it asks for its references: a list and a variable
# here, and the argument of the function.
OWN_REFERENCES = 3
# Untracked objects that are worth a node.
KEPT = (tuple, dict, bytes, bytearray)


def number(value):
    encoded = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


def text(value):
    encoded = value.encode("utf-8", "replace")
    return number(len(encoded)) + encoded


def blocks(content):
    for start in list(range(0, len(content), BLOCK)) + [len(content)]:
        part = content[start:start + BLOCK]
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        packed = packer.compress(part) + packer.flush()
        packed += bytes(max(0, -(-len(part) // 32) - len(packed)))
        yield struct.pack("<III", len(part), len(packed), zlib.crc32(part)) + packed


def code_of(thing):
    """(name, file, line) of what belongs to code."""
    if isinstance(thing, types.FunctionType):
        code = thing.__code__
        return thing.__qualname__, code.co_filename, code.co_firstlineno
    if isinstance(thing, types.MethodType) and isinstance(thing.__func__, types.FunctionType):
        return code_of(thing.__func__)
    if isinstance(thing, types.FrameType):
        return thing.f_code.co_name, thing.f_code.co_filename, thing.f_lineno
    if isinstance(thing, type):
        return thing.__qualname__, None, None
    return None, None, None


def type_name(thing):
    own = type(thing)
    module = own.__module__
    return own.__qualname__ if module == "builtins" else "%s.%s" % (module, own.__qualname__)


def names(thing):
    """Names of an object's references, by id() of what it refers to."""
    known = {}
    def add(name, value):
        known.setdefault(id(value), name)
    if isinstance(thing, dict):
        for key, value in dict.items(thing):
            add("[%s]" % (repr(key) if type(key) in (str, int, bytes) else type(key).__name__), value)
        for key in dict.keys(thing):
            add(".keys()[]", key)
    elif type(thing) in (list, tuple):
        for position, value in enumerate(thing):
            add(position, value)
    elif isinstance(thing, types.FunctionType):
        for name in ("__code__", "__globals__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__"):
            value = getattr(thing, name)
            if value is not None:
                add("." + name, value)
    elif isinstance(thing, types.CellType):
        try:
            add(".cell_contents", thing.cell_contents)
        except ValueError:
            pass
    elif isinstance(thing, types.MethodType):
        add(".__self__", thing.__self__)
        add(".__func__", thing.__func__)
    elif isinstance(thing, types.ModuleType):
        add(".__dict__", thing.__dict__)
    elif isinstance(thing, type):
        for name in ("__mro__", "__bases__", "__base__"):
            add("." + name, type.__getattribute__(thing, name))
        # Python shows a proxy of it.
        for value in gc.get_referents(thing):
            if type(value) is dict:
                add(".__dict__", value)
    else:
        try:
            own = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            own = None
        if type(own) is dict:
            add(".__dict__", own)
            for name, value in own.items():
                add(".%s" % name, value)
    add(".__class__", type(thing))
    return known


def roots(position, skip):
    found = []
    for name, module in list(sys.modules.items()):
        if id(module) in position:
            found.append((position[id(module)], "module %s" % name))
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name != "<module>":
            where = "frame %s (%s:%d)" % (
                frame.f_code.co_name, os.path.basename(frame.f_code.co_filename), frame.f_lineno)
            for value in frame.f_locals.values():
                if id(value) in position and id(value) not in skip:
                    found.append((position[id(value)], where))
        frame = frame.f_back
    return found


def write(path, collect=True):
    """Writes the heap to `path`, after a full collection if `collect`. Returns the ids of tracked objects."""
    if collect:
        gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    for thing in gc.get_objects():
        # From 3.11 on, a namespace becomes an object when it is asked for.
        names(thing)
    # Without a loop, whose iterator would be among them.
    thing = None
    objects = gc.get_objects(2)
    placed = [2] * len(objects)
    objects += gc.get_objects(1)
    placed += [1] * (len(objects) - len(placed))
    objects += gc.get_objects(0)
    placed += [0] * (len(objects) - len(placed))
    skip = {id(objects), id(placed), id(sys._getframe())}
    keep = [at for at, thing in enumerate(objects) if id(thing) not in skip]
    objects[:], placed[:] = [objects[at] for at in keep], [placed[at] for at in keep]
    tracked = [id(thing) for thing in objects]
    position = dict(zip(tracked, range(len(tracked))))
    edges, next_one = [], 0
    while next_one < len(objects):
        thing = objects[next_one]
        known = names(thing)
        for to in gc.get_referents(thing):
            if id(to) not in position and isinstance(to, KEPT) and not gc.is_tracked(to):
                position[id(to)] = len(objects)
                objects.append(to)
                placed.append(UNTRACKED)
            if id(to) in position:
                edges.append((next_one, position[id(to)], known.get(id(to))))
        next_one += 1
    to = known = thing = None
    texts, text_at = [], {}
    def text_index(value):
        if value not in text_at:
            text_at[value] = len(texts)
            texts.append(value)
        return text_at[value]
    kinds, kind_at = [], {}
    nodes = bytearray(number(len(objects)))
    before = 0
    references = list(map(sys.getrefcount, objects))
    for at in range(len(objects)):
        thing = objects[at]
        code = code_of(thing)
        key = (type_name(thing),) + code
        if key not in kind_at:
            kind_at[key] = len(kinds) + 1
            described = dict(zip(("type_name", "function", "file", "line"), key), id=len(kinds) + 1)
            kinds.append({name: value for name, value in described.items() if value is not None})
        label = text_index(thing.__name__) if isinstance(thing, types.ModuleType) else None
        # A list, and the argument.
        count = references[at] - 2 if references[at] < IMMORTAL else None
        try:
            size = sys.getsizeof(thing)
        except Exception:
            size = None
        flags = placed[at] | (label is not None) << 3 | (count is not None) << 4 | (size is not None) << 5
        flags |= (id(thing) < before) << 6
        distance = abs(id(thing) - before)
        before = id(thing)
        rotated = distance >> 4 | (distance & 15) << 60
        nodes += bytes([flags]) + number(rotated) + number(kind_at[key])
        for value in (label, count, size):
            if value is not None:
                nodes += number(max(value, 0))
    thing = None
    written = bytearray(number(len(edges)))
    before = 0
    for start, end, name in edges:
        encoded = 0 if name is None else 2 * name + 1 if type(name) is int else 2 * text_index(name) + 2
        written += number(start - before)
        written += number(abs(end - start) * 2 + (end < start)) + number(encoded)
        before = start
    held = [(node, text_index(name)) for node, name in roots(position, skip)]
    header = {
        "pid": os.getpid(), "command": ["python"] + sys.argv, "version": sys.version.split()[0],
        "at_ns": time.monotonic_ns(), "taken_s": int(time.time()), "in_process": True, "notes": [],
    }
    content = text(json.dumps({"header": header, "kinds": kinds}))
    content += number(len(texts)) + b"".join(map(text, texts)) + bytes(nodes) + bytes(written)
    content += number(len(held)) + b"".join(number(node) + number(name) for node, name in held)
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<I", VERSION) + b"".join(blocks(content)))
    # They are in a cycle with the functions above.
    del objects[:]
    if was_enabled:
        gc.enable()
    return tracked
