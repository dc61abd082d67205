#!/usr/bin/env python3
"""Prints the types of the report for type checkers, from docs/report.schema.json: a module `_report` of the wheel.

    packaging/python/report_types.py > FILE
"""

import json
import keyword
import pathlib
import sys
import textwrap

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs/report.schema.json"
SIMPLE = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}


def type_of(schema):
    if schema is True or not schema:
        return "Any"
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return "Literal[" + ", ".join(map(repr, schema["enum"])) + "]"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return union(map(type_of, schema[key]))
    kinds = schema.get("type", "object")
    if isinstance(kinds, list):
        return union(type_of({**schema, "type": kind}) for kind in kinds)
    if kinds == "array":
        if "prefixItems" in schema:
            return "List[" + union(map(type_of, schema["prefixItems"])) + "]"
        return f"List[{type_of(schema.get('items', True))}]"
    if kinds == "object":
        more = schema.get("additionalProperties")
        return f"Dict[str, {type_of(more)}]" if isinstance(more, dict) else "Dict[str, Any]"
    return SIMPLE[kinds]


def union(types):
    types = list(dict.fromkeys(types))
    others = [one for one in types if one != "None"]
    text = others[0] if len(others) == 1 else "Union[" + ", ".join(others) + "]"
    return text if len(others) == len(types) else f"Optional[{text}]"


def document(text, indent):
    if not text:
        return []
    text = " ".join(text.replace("\\", "\\\\").split())
    lines = textwrap.wrap(text, 110 - len(indent) - 6)
    lines[0] = '"""' + lines[0]
    lines[-1] += '"""'
    return [indent + line for line in lines]


def class_of(name, schema):
    members = schema.get("properties", {})
    if any(keyword.iskeyword(member) or not member.isidentifier() for member in members):
        fields = ", ".join(f"{member!r}: {type_of(of)!r}" for member, of in members.items())
        return [f"{name} = TypedDict({name!r}, {{{fields}}})"]
    lines = [f"class {name}(TypedDict):", *document(schema.get("description"), "    ")]
    for member, of in members.items():
        lines.append(f"    {member}: {type_of(of)}")
        lines.extend(document(of.get("description") if isinstance(of, dict) else None, "    "))
    return lines


def types():
    schema = json.loads(SCHEMA.read_text())
    text = ['"""The report\'s types, written by packaging/python/report_types.py from docs/report.schema.json."""']
    text += ["", "from __future__ import annotations", "", "from typing import Any, Dict, List, Literal, Optional, TypedDict, Union", ""]
    for name, one in schema["$defs"].items():
        if one.get("type") == "object" and "properties" in one:
            text += ["", *class_of(name, one), ""]
        else:
            text += ["", f"{name} = {quoted(one)}", *document(one.get("description"), ""), ""]
    text += ["", *class_of("Report", schema)]
    return "\n".join(text) + "\n"


def quoted(schema):
    text = type_of(schema)
    return text if text.startswith("Literal") or text in SIMPLE.values() else f"Union[{text!r}]"


if __name__ == "__main__":
    sys.stdout.write(types())
