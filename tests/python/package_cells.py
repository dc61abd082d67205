"""Cells of a whole recording have the numbers that their notebook and their prompts show.

    python package_cells.py FOLDER [HOW]

HOW is the recording's mode, `inject` unless it is given. Needs IPython, ipykernel and jupyter_client, and the binary in
GCTRACE_PROGRAM. Prints `ok`.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import gctrace

FOLDER = pathlib.Path(sys.argv[1])
HOW = sys.argv[2] if len(sys.argv) > 2 else "inject"
RECORD = [gctrace.find_bin(), "record", "-q", "--mode", HOW, "--garbage", "cycles", "-o"]

# Each with the line and the function of its collection, if it has one.
CELLS = [
    ("import gc\ngc.disable()", None),
    ("def other():\n    gc.collect()", (2, "other")),
    ("other()\ngc.collect()", (2, "<module>")),
    ("gc.collect()  # ends in lines\n\n", (1, "<module>")),
    ("1 / 0", None),
    ("%%time\n\ngc.collect()", None),
    ("gc.collect()  # é, 漢", (1, "<module>")),
    ("get_ipython().run_cell('def within():\\n    gc.collect()\\nwithin()\\nimport time; time.sleep(1)')", (2, "within")),
    # Of such cells IPython keeps no history.
    ("%alias_magic other_time time\n'paste'", None),
    ("class Model:\n    def fit(self):\n        gc.collect()\nModel().fit()", (3, "Model.fit")),
    ("def knot():\n    def me():\n        return me\nfor _ in range(9000):\n    knot()\ngc.collect()", (6, "<module>")),
    ("gc.collect()\nimport os\nif os.fork() == 0:\n    try:\n        gc.collect()\n    finally:\n        os._exit(0)\n"
     "os.wait()", (1, "<module>")),
]
# Runs twice.
AGAIN = 3


def places(trace):
    """The lines of cells in the report and in what was freed."""
    report = gctrace.analyze(trace)
    # On a loaded machine a cell that has no history is seen where it waits.
    text = str({name: part for name, part in report.items() if name != "cpu"})
    for hidden in (tempfile.gettempdir() + "/ipykernel_", "ipython-input", "In [?]"):
        assert hidden not in text, (hidden, text[text.find(hidden) - 200 :][:400])
    locations = [line["location"] for line in report["lines"]["own"]]
    found = {(location["file"], location["line"], location["function"]) for location in locations}
    return {place for place in found if place[0].startswith("In [")}, text


def kernel():
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager

    trace = FOLDER / "kernel.json"
    manager = KernelManager()
    run = [*RECORD, str(trace), "--", sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager._kernel_spec = KernelSpec(argv=run)
    manager.start_kernel(cwd=str(FOLDER))
    client = manager.client()
    client.start_channels()
    expected = set()
    try:
        client.wait_for_ready(timeout=120)

        def execute(text):
            # What a notebook stores beside its cell.
            reply = client.execute_interactive(text, timeout=120, output_hook=lambda message: None)
            return reply["content"]["execution_count"]

        for text, place in CELLS:
            number = execute(text)
            if place is not None:
                expected.add(("In [{}]".format(number), *place))
        assert execute(CELLS[AGAIN][0]) > number
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    found, text = places(trace)
    # What runs within a cell has its number, or that of the next one if it was seen only then.
    (within,) = (place for place in expected if place[2] == "within")
    if within not in found:
        expected.remove(within)
        expected.add(("In [{}]".format(int(within[0][4:-1]) + 1), *within[1:]))
    # The last cell has a child, which collects too.
    expected.add(("In [{}]".format(number), 5, "<module>"))
    # CPython 3.8 to 3.10 have no qualified names.
    if sys.version_info < (3, 11):
        expected = {(file, line, function.split(".")[-1]) for file, line, function in expected}
    assert found == expected, (found ^ expected, found)
    # Where the garbage was made.
    assert "In [11]" in text, text


def terminal():
    trace = FOLDER / "terminal.json"
    lines = ["import gc", "gc.disable()", "gc.collect()", "def other(): gc.collect()", "", "other()"]
    environment = dict(os.environ, IPYTHONDIR=str(FOLDER / "ipython"))
    run = [*RECORD, str(trace), "--", sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--no-confirm-exit"]
    printed = subprocess.run(run, input="\n".join(lines) + "\n", stdout=subprocess.PIPE, universal_newlines=True, env=environment)
    assert printed.returncode == 0, printed
    prompts = [int(number) for number in re.findall(r"In \[(\d+)\]:", printed.stdout)]
    assert prompts[:5] == [1, 2, 3, 4, 5], printed.stdout
    found, _ = places(trace)
    assert found == {("In [3]", 1, "<module>"), ("In [4]", 1, "other")}, found


kernel()
terminal()
print("ok")
