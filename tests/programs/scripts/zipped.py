"""Packs a program into one file and runs that."""

import pathlib
import shutil
import subprocess
import sys
import zipapp

import work

source = pathlib.Path("source")
source.mkdir()
shutil.copy(work.__file__, source / "work.py")
(source / "__main__.py").write_text("import work\nprint('zipped', work.work())\n")
zipapp.create_archive(source, "program.pyz")
print("exit code", subprocess.run([sys.executable, "program.pyz"]).returncode)
