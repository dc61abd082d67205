"""CPython's own tests of what a recorder, or other settings, could disturb: collections, threads, signals, processes.

Each case must have the same result as untraced. Collections are not counted: many of these tests
compare the environment, descriptors or the output of `-X importtime`, which truth/sitecustomize.py
would change.
"""

import xml.etree.ElementTree

from program import Program

GROUPS = {
    "collector": "test_gc test_audit test_weakref test_finalization test_sys test_capi test_atexit test_generators",
    "threads": "test_threading test_thread test_threadedtempfile test_queue test_signal test_threadsignals test_faulthandler",
    "processes": "test_subprocess test_fork1 test_os test_posix test_wait3 test_wait4 test_popen test_pty test_embed",
    "pools": "test_multiprocessing_main_handling test_concurrent_futures test_multiprocessing_forkserver",
}
VERSIONS = ("3.8", "3.11", "3.12", "3.13")
# pyenv's 3.12.1 does not install the packages of the other tests, and those of 3.13.0 did not end in 20 minutes, untraced.
FEWER = dict.fromkeys([("3.12", "pools"), ("3.13", "pools")], "test_multiprocessing_main_handling")

# What `gctrace apply` applies to these modules. Not what makes test_gc wait for a collection in vain, as the program's
# own gc.disable() does, and a threshold above 10,000.
APPLIED = {
    "threshold": ("--gc", "threshold=7000,10,10"),
    "forks": ("--gc", "freeze-forks"),
    "freeze": ("--gc", "freeze@step:2", "--step-function", "TestCase.run"),
    "plan": ("--gc", "plan:10,gen2:100", "--step-function", "TestCase.run"),
}
APPLIED_TO = "test_gc test_audit test_atexit test_fork1 test_signal test_threading"


def results(work):
    """The cases that did not pass, and the number that did."""
    root = xml.etree.ElementTree.parse(work / "results.xml").getroot()
    wrong, right = [], 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            wrong.append(case.get("name"))
        else:
            right += 1
    if not right:
        raise ValueError("no test ran")
    return {"passed or skipped": right, "failed": sorted(set(wrong))}


def tests(version, group, modules, workers="-j2", **more):
    return Program(
        f"cpython_{version.replace('.', '_')}_{group}",
        ["sh", "-c", f"{{python}} -m test {workers} -q --junit-xml {{work}}/results.xml {modules} >/dev/null 2>&1; true"],
        python=f"pyenv-{version}",
        modules=["test.test_gc"],
        processes=0,
        limit=1200,
        stderr=False,
        results=results,
        **more,
    )


def settings(version):
    """Functions are steps from 3.12 on."""
    for name, setting in APPLIED.items():
        if version not in ("3.8", "3.11") or "--step-function" not in setting:
            yield tests(version, name, APPLIED_TO, "", setting=setting)


PROGRAMS = [tests(version, group, FEWER.get((version, group), modules)) for version in VERSIONS for group, modules in GROUPS.items()]
PROGRAMS += [one for version in VERSIONS for one in settings(version)]
