"""`__startup__` of a frozen base (see test/elf_python.py): the part of python's command line that scripts
and multiprocessing use. Interpreters that were made before link to it by this path."""

import signal
import sys


def init():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run():
    import os

    arguments = sys.orig_argv[1:]
    command = module = None
    while arguments and arguments[0].startswith("-") and arguments[0] != "-":
        option = arguments.pop(0)
        if option == "-c":
            command = arguments.pop(0)
            break
        if option == "-m":
            module = arguments.pop(0)
            break
        if option in ("-X", "-W"):
            arguments.pop(0)
        if option in ("-V", "--version"):
            print("Python", sys.version.split()[0])
            return
        if option == "-u":
            sys.stdout.reconfigure(write_through=True)
            sys.stderr.reconfigure(write_through=True)
    sys.path[:0] = [p for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    space = sys.modules["__main__"].__dict__
    if command is not None:
        sys.argv = ["-c", *arguments]
        sys.path.insert(0, "")
        exec(compile(command, "<string>", "exec"), space)
    elif module is not None:
        import runpy

        sys.argv = [module, *arguments]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(module)
    elif arguments and arguments[0] != "-":
        script = arguments[0]
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
        space["__file__"] = script
        with open(script, "rb") as source:
            code = compile(source.read(), script, "exec")
        exec(code, space)
    else:
        sys.argv = arguments or [""]
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), space)
