"""Waits for a command and its stops, as sudo, su, script and shells do: supervisor.py COMMAND..."""

import os
import sys

import work

work.work()
child = os.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED)
    if os.WIFSTOPPED(status):
        print("stopped by", os.WSTOPSIG(status))
    elif os.WIFCONTINUED(status):
        print("continued")
    else:
        print("ended with", os.waitstatus_to_exitcode(status))
        break
