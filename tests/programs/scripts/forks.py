"""Forks every 10 ms: forks.py TIMES"""

import os
import sys
import time

import work

children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        work.work(3_000)
        os._exit(0)
    children.append(child)
    time.sleep(0.01)
print("ended:", sum(os.waitpid(child, 0)[1] == 0 for child in children))
