#!/usr/bin/env python3
"""Writes a trace of many processes with one pause each, to measure `gctrace analyze`:

    scripts/bench/many-processes.py trace.json 1000000              pauses only, as of processes attached late
    scripts/bench/many-processes.py trace.json 300000 --threads     one process, as many threads
    scripts/bench/many-processes.py trace.json 100000 --described   each with its description and its end

Prints its seed; --seed N repeats a trace.
"""
import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("processes", type=int)
parser.add_argument("--threads", action="store_true")
parser.add_argument("--described", action="store_true")
parser.add_argument("--seed", type=int, default=random.randrange(2**32))
arguments = parser.parse_args()
print(f"seed {arguments.seed}")
chance = random.Random(arguments.seed)

START_US = 3_600_000_000
HEADER = (
    '{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"gctrace_header","pid":0,"tid":0,'
    f'"ts":{START_US}.000,"args":{{"format":"gctrace.trace/1","started_ns":{START_US}000}}}}'
)
with open(arguments.file, "w", buffering=1 << 20) as out:
    out.write(HEADER)
    now = START_US
    for number in range(1000, 1000 + arguments.processes):
        pid = 1000 if arguments.threads else number
        now += chance.randrange(20, 200)
        length = chance.randrange(1, 1_000_000)
        if arguments.described:
            out.write(
                f',\n{{"ph":"M","name":"gctrace_process","pid":{pid},"tid":{pid},"ts":{now}.000,"args":'
                f'{{"origin":"child","parent":1,"command":["python","worker.py","--index","{number}"],'
                '"interpreter":{"file":"/usr/bin/python3.12","version":"3.12.1","free_threaded":false,'
                '"collector":"generational","found_by":"symbol table"}}}'
            )
        out.write(
            f',\n{{"ph":"X","cat":"gc","name":"gc gen2","pid":{pid},"tid":{number},"ts":{now}.001,'
            f'"dur":{length // 1000}.{length % 1000:03}}}'
        )
        if arguments.described:
            out.write(
                f',\n{{"ph":"i","s":"p","cat":"gctrace","name":"gctrace_process_exit","pid":{pid},"tid":{pid},'
                f'"ts":{now + 10_000}.000,"args":{{"code":0}}}}'
            )
    out.write(
        f',\n{{"ph":"M","name":"gctrace_end","pid":0,"tid":0,"ts":{now + 20_000}.000,"args":'
        f'{{"ended_ns":{now + 20_000}000,"why":"the command ended","lost":{{}},"omitted":{{"count":0,"total_ns":0}},"probes":[]}}}}'
    )
    out.write("\n]}\n")
