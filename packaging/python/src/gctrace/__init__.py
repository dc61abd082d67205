"""The program gctrace, which the package installs; `python -m gctrace` runs it."""

import os
import sysconfig


def find_bin():
    """Path of the program installed with this package.

    Raises FileNotFoundError if there is none.
    """
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [
        # pip install --target
        os.path.join(packages, "bin"),
        # PREFIX/lib/pythonX.Y/site-packages: environments, pip install --user and --prefix
        os.path.normpath(os.path.join(packages, "..", "..", "..", "bin")),
        sysconfig.get_path("scripts"),
    ]
    for folder in folders:
        program = os.path.join(folder, "gctrace")
        if os.path.isfile(program):
            return program
    raise FileNotFoundError(
        "no program gctrace in {}: pip install --force-reinstall gctrace".format(", ".join(folders))
    )
