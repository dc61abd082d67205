"""Allocates at a steady rate in one of several ways, and says how many rounds it made in how much CPU time.

usage: allocate.py KIND CPU_SECONDS
"""

import json
import sys
import time


def integers(rounds):
    for number in range(1000, 1000 + rounds):
        value = number + 7
    return value


def growing(rounds):
    kept = {}
    for number in range(rounds):
        kept[number * 7] = [number]


DOCUMENT = [{"a": number, "b": [1.5, 2, 3], "c": "text%d" % number} for number in range(40)]
TEXT = json.dumps(DOCUMENT)

KINDS = {
    "integers": lambda: integers(2_000_000),
    "growing": lambda: growing(300_000),
    "loads": lambda: json.loads(TEXT),
    "dumps": lambda: json.dumps(DOCUMENT),
}


def main():
    work, seconds = KINDS[sys.argv[1]], float(sys.argv[2])
    rounds, begin = 0, time.process_time()
    while time.process_time() - begin < seconds:
        work()
        rounds += 1
    print(json.dumps({"rounds": rounds, "cpu_s": time.process_time() - begin}), flush=True)


main()
