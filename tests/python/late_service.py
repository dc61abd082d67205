"""A service that is late now and then: late_service.py OUTPUT computes|sleeps|gil [moved].

OUTPUT gets `late`, in ns: how much later than planned its timers are run after each cause, the median of the worst
ones. `moved`: the cause is where gctrace advises.
"""

import asyncio
import concurrent.futures
import json
import random
import statistics
import sys
import threading
import time

OUTPUT, KIND = sys.argv[1:3]
MOVED = len(sys.argv) > 3
ROUNDS = 8
TICKS = 30
TICK_S = 0.005
NUMBERS = [random.random() for _ in range(200_000)]


def computes():
    end = time.thread_time_ns() + 40_000_000
    while time.thread_time_ns() < end:
        pass


def sleeps():
    time.sleep(0.04)


def sorts():
    """One call into native code, which keeps the GIL."""
    sorted(NUMBERS)


async def cause(pool):
    loop = asyncio.get_running_loop()
    if KIND == "computes":
        return await loop.run_in_executor(pool, computes) if MOVED else computes()
    if KIND == "sleeps":
        return await loop.run_in_executor(None, sleeps) if MOVED else sleeps()
    if MOVED:
        return await loop.run_in_executor(pool, sorts)
    return threading.Thread(target=sorts).start()


async def main(pool):
    worst = []
    for _ in range(ROUNDS):
        pending = asyncio.ensure_future(cause(pool))
        planned = time.monotonic_ns()
        late = 0
        for _ in range(TICKS):
            planned += int(TICK_S * 1e9)
            await asyncio.sleep(max(0, planned - time.monotonic_ns()) / 1e9)
            late = max(late, time.monotonic_ns() - planned)
            planned = time.monotonic_ns()
        await pending
        worst.append(late)
    return statistics.median(worst)


if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as processes:
        if MOVED:
            processes.submit(computes).result()
        with open(OUTPUT, "w", encoding="utf-8") as file:
            json.dump({"late": asyncio.run(main(processes))}, file)
