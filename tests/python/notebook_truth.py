"""A shell with cells, laid out as IPython's, for interpreters that lack IPython.

Prints a line of JSON with the number of each file, the one that another look should find; then again, after each byte of input,
with other cells.
"""

import json
import sys
import types


class HasTraits(object):
    def __init__(self, **values):
        self._trait_values = values


class Compiler(object):
    def __init__(self):
        self.flags = 0
        self._filename_map = {}


class InteractiveShell(HasTraits):
    _instance = None


class ZMQInteractiveShell(InteractiveShell):
    pass


module = types.ModuleType("IPython.core.interactiveshell")
module.InteractiveShell = InteractiveShell
sys.modules[module.__name__] = module
entered = [""]
shell = ZMQInteractiveShell(execution_count=1, history_manager=HasTraits(input_hist_parsed=entered))
ZMQInteractiveShell._instance = InteractiveShell._instance = shell
# As many as keep values within the object, and as need a dict.
if "many" in sys.argv:
    for number in range(200):
        setattr(shell, "attribute_{}".format(number), number)
if "dict" in sys.argv:
    vars(shell)["added"] = 1
    del shell.added
shell.compile = Compiler()
if "general" in sys.argv:
    shell.compile._filename_map[1] = 2


def cell(file, is_entered=True):
    shell.compile._filename_map[file] = shell._trait_values["execution_count"]
    if is_entered:
        entered.append("pass")
        shell._trait_values["execution_count"] += 1


def turn(expected):
    print(json.dumps(expected), flush=True)
    sys.stdin.read(1)


turn({"/tmp/ipykernel_1/1.py": None})
cell("/tmp/ipykernel_1/1.py")
cell("/tmp/ipykernel_1/\u00e9\u6f22.py")
turn({"/tmp/ipykernel_1/1.py": 1, "/tmp/ipykernel_1/\u00e9\u6f22.py": 2, "/tmp/ipykernel_1/2.py": None})
cell("within", False)
for number in range(400):
    cell(str(number))
cell("/tmp/ipykernel_1/1.py")
cell("after", False)
turn({"/tmp/ipykernel_1/1.py": 403, "within": 3, "0": 3, "399": 402, "300": 303, "after": 403})
# One that is not kept.
shell._trait_values["execution_count"] += 1
cell("one more")
turn({"one more": 405, "399": 402})
shell.compile._filename_map["odd"] = "1"
shell.compile._filename_map["large"] = 1 << 40
shell.compile._filename_map["negative"] = -1
turn({"odd": None, "large": None, "negative": None, "one more": 405})
del InteractiveShell._instance
turn({"one more": 405})
