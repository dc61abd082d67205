"""`gctrace.load` against the trace's own JSON, by each library that is installed.

    package_tables.py FOLDER       (PYTHONPATH with the package, GCTRACE_PROGRAM; a Python of scripts/venv.sh tables
                                    or tables-short)
"""

import gc
import importlib
import json
import os
import sys

import gctrace

TRACE = os.path.join(sys.argv[1], "trace.json")
# How each of them gives a column as a list.
READERS = {
    "pandas": lambda table, column: table[column].tolist(),
    "polars": lambda table, column: table[column].to_list(),
    "pyarrow": lambda table, column: table.column(column).to_pylist(),
}
DEFAULT = ("pandas", "polars", "pyarrow")


def is_installed(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


gc.disable()
with gctrace.record(TRACE, by="callbacks"):
    for generation in (0, 1, 2, 0, 2):
        one = []
        one.append(one)
        del one
        gc.collect(generation)
with open(TRACE) as file:
    events = [event for event in json.load(file)["traceEvents"] if event.get("cat") == "gc"]
# `dur` is in microseconds with three decimals.
truth = [(event["args"]["generation"], round(event["dur"] * 1000), event["args"]["collected"]) for event in events]
assert len(truth) == 5, truth

read = []
for name, column in READERS.items():
    if not is_installed(name):
        try:
            gctrace.load(TRACE, to=name)
            raise AssertionError(name)
        except ImportError as error:
            assert name in str(error), error
        continue
    with gctrace.load(TRACE, to=name) as tables:
        assert {"pauses", "ranks", "frames"} <= set(tables) and len(tables) == len(list(tables)), list(tables)
        pauses = tables["pauses"]
        assert type(pauses).__module__.split(".")[0] == name, type(pauses)
        found = zip(column(pauses, "generation"), column(pauses, "dur_ns"), column(pauses, "collected"))
        assert [tuple(map(int, row)) for row in found] == truth, (name, pauses)
        # Read once, and kept when the files are gone.
        assert tables["pauses"] is pauses
        folder = tables._folder
    assert not os.path.exists(folder) and column(pauses, "generation") == [0, 1, 2, 0, 2]
    try:
        tables["none"]
        raise AssertionError("there is no such table")
    except KeyError:
        pass
    read.append(name)
assert read, "none of pandas, polars and pyarrow is installed"

default = next(name for name in DEFAULT if name in read and (name != "pandas" or is_installed("pyarrow")))
assert type(gctrace.load(TRACE)["pauses"]).__module__.split(".")[0] == default
assert gctrace.load(TRACE, to=default)["pauses"].shape[0] == 5
# A reader of one's own is not needed for the names, and what is wrong is named.
for wrong, error in (({"to": "numpy"}, ValueError), ({}, gctrace.ProgramError)):
    try:
        gctrace.load(TRACE if wrong else TRACE + ".none", **wrong)
        raise AssertionError(wrong)
    except error:
        pass
print(read)
print("ok")
