"""The package gctrace in pytest, IPython, a Jupyter kernel and mypy.

    package_tools.py FOLDER       (PYTHONPATH with the package, GCTRACE_PROGRAM; a Python of scripts/venv.sh package)
"""

import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(sys.argv[1])

TESTS = """
import gc, pytest
gc.disable()
def collects(times):
    for _ in range(times): gc.collect()
def long():
    kept = [[i] for i in range(300_000)]
    collects(5)
def test_without(): pass
def test_five(): collects(5)
@pytest.mark.gc_limit(collections=3)
def test_too_many(): collects(4)
@pytest.mark.gc_limit(collections=4, longest_ms=60_000, total_ms=60_000, share=1)
def test_within(): collects(4)
@pytest.mark.gc_limit(share=0.01)
def test_share(): long()
@pytest.mark.gc_limit(longest_ms=0.01)
def test_longest(): long()
@pytest.mark.gc_limit(total_ms=0.01)
def test_total(): long()
@pytest.mark.gc_limit(collections=0)
def test_fails_itself():
    collects(1)
    assert False, 'its own'
@pytest.mark.gc_limit(colections=0)
def test_misspelt(): pass
class TestGroup:
    pytestmark = pytest.mark.gc_limit(collections=1)
    def test_group(self): collects(2)
    @pytest.mark.gc_limit(collections=9)
    def test_the_nearest_mark_counts(self): collects(2)
"""
FAILURES = {
    "test_too_many": "4 collections, limit 3",
    "test_share": "of the test, limit 1 %",
    "test_longest": "longest pause",
    "test_total": "in all, limit 0.01 ms",
    "test_fails_itself": "its own",
    "test_misspelt": "['colections'] is none of",
    "test_group": "2 collections, limit 1",
}


def pytest(*options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gctrace.pytest_plugin", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.decode(), done.returncode


def judged(*options):
    printed, code = pytest("--junitxml=junit.xml", *options)
    assert code == 1, printed
    cases = {}
    for case in xml.etree.ElementTree.parse(FOLDER / "junit.xml").iter("testcase"):
        failure = case.find("failure")
        properties = {one.get("name"): float(one.get("value")) for one in case.iter("property")}
        cases[case.get("name")] = (None if failure is None else failure.get("message"), properties)
    failed = {name: message for name, (message, _) in cases.items() if message is not None}
    assert set(failed) == set(FAILURES), printed
    for name, text in FAILURES.items():
        assert text in failed[name], (name, failed[name])
    return cases, printed


def limits_of_tests():
    (FOLDER / "test_limits.py").write_text(TESTS)
    # Marks are limits without any option, and no property is there but for marked tests.
    cases, printed = judged()
    assert cases["test_five"][1] == {} and "garbage collector ==" not in printed, printed
    cases, printed = judged("--gctrace")
    collections = {name: properties["gc_collections"] for name, (_, properties) in cases.items()}
    assert collections["test_without"] == 0 and collections["test_five"] == 5, collections
    _, properties = cases["test_share"]
    assert 0 < properties["gc_longest_ms"] <= properties["gc_ms"] and 0.01 < properties["gc_share"] <= 1, properties
    assert "5 collections, longest" in printed and "test_limits.py::test_share" in printed, printed
    # In two processes, recorded.
    judged("--gctrace", "-n", "2", "--gctrace-output", "session.json")
    import gctrace

    found = gctrace.analyze(FOLDER / "session.json")
    assert found["totals"]["processes"] >= 2, found["totals"]
    # 5 of each of four tests, and what the others make.
    assert found["totals"]["pauses"]["count"] >= 29, found["totals"]


def cells():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shown = []
    shell.display_pub.publish = lambda data, **_: shown.append(data)
    shell.displayhook.write_format_data = lambda data, *_: shown.append(data)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in (
            "%load_ext gctrace",
            "import gc\ndef other():\n    gc.collect()",
            "%%gctrace\nother()\ngc.collect()\ngc.collect()",
            "%gctrace_report",
        ):
            shell.run_cell(cell, store_history=True)
    text = printed.getvalue()
    assert "gctrace: 3 pauses, " in text and "by gc.callbacks" in text, text
    # Of this cell and of another, as they are seen.
    for line in ("In [2]:3 in other", "In [3]:3 in <module>", "In [3]:4 in <module>"):
        assert line in text, (line, text)
    (page,) = (data["text/html"] for data in shown if "text/html" in data)
    assert page.startswith("<iframe") and "In [2]" in page and "Content-Security-Policy" in page, page[:500]


def kernel():
    """A Jupyter kernel that gctrace records: its magics, and the trace of the whole session."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager

    import gctrace

    trace = FOLDER / "kernel.json"
    command = [gctrace.find_bin(), "record", "-q", "--mode", "inject", "-o", str(trace), "--"]
    manager = KernelManager()
    # `gctrace -- python ...` instead of `python ...`, as in a kernel.json.
    manager._kernel_spec = KernelSpec(argv=[*command, sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
    manager.start_kernel(cwd=str(FOLDER))
    client = manager.client()
    client.start_channels()
    printed = []
    try:
        client.wait_for_ready(timeout=120)

        def output(message):
            content = message["content"]
            printed.append(content.get("text") or content.get("data", {}).get("text/html") or "\n".join(content.get("traceback", [])))

        for cell in (
            "%load_ext gctrace\nimport gc, gctrace",
            "def other():\n    gc.collect()",
            "%%gctrace\nother()\ngc.collect()\ngc.collect()",
            "mark = gctrace.mark()\ngc.collect()\nprint(gctrace.summary(mark))",
            "%gctrace_report",
            "with gctrace.record({!r}, by='callbacks'):\n    gc.collect()\n    other()".format(str(FOLDER / "block.json")),
        ):
            client.execute_interactive(cell, timeout=120, output_hook=output)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    text = "".join(printed)
    assert "gctrace: 3 pauses, " in text and "by gc.callbacks" in text, text
    for line in ("In [2]:2 in other", "In [3]:3 in <module>", "In [3]:4 in <module>"):
        assert line in text, (line, text)
    assert "1 pauses, " in text and "by the injected library" in text, text
    assert "<iframe" in text and "Content-Security-Policy" in text, text[-500:]
    # The same cells in the recording of the session, and in that of a block.
    cells = {("In [2]", 2), ("In [4]", 2), ("In [6]", 2)}
    for recording, expected in ((trace, cells), (FOLDER / "block.json", {("In [2]", 2), ("In [6]", 2)})):
        lines = gctrace.analyze(recording)["lines"]["own"]
        places = {(line["location"]["file"], line["location"]["line"]) for line in lines}
        assert expected <= places, (recording, places)
        # What the magic runs, where it may be seen only when the next cell runs.
        if recording == trace:
            within = {line for file, line in places if file in ("In [3]", "In [4]")}
            assert {3, 4} <= within, places


def types():
    package = FOLDER / "checked"
    shutil.copytree(ROOT / "packaging/python/src/gctrace", package / "gctrace")
    made = subprocess.run([sys.executable, ROOT / "packaging/python/report_types.py"], stdout=subprocess.PIPE, check=True)
    (package / "gctrace/_report.py").write_bytes(made.stdout)
    (package / "user.py").write_text(
        "import gctrace\n"
        "count: int = gctrace.analyze('a.json')['totals']['pauses']['count']\n"
        "longest: float = gctrace.summary(gctrace.mark()).longest_s\n"
        "with gctrace.record('a.json') as recording, gctrace.apply('freeze'):\n"
        "    source: str = recording.source\n"
    )
    (package / "wrong.py").write_text("import gctrace\ncount: str = gctrace.analyze('a.json')['totals']['pauses']['count']\n")

    def mypy(*files):
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", package / "cache", *files]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, cwd=package, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        return done.returncode, done.stdout.decode()

    code, printed = mypy("gctrace", "user.py")
    assert code == 0, printed
    code, printed = mypy("wrong.py")
    assert code == 1 and 'expression has type "int"' in printed, printed


limits_of_tests()
cells()
kernel()
types()
print("ok")
