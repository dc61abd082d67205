#!/usr/bin/env python3
"""A loop of timers with callbacks, without asyncio: callbacks are closures that end with their timer."""

import heapq
import itertools

import progress


def main():
    clients = {number: {"number": number, "log": [[number]]} for number in range(60_000)}
    count, timers = itertools.count(), []

    def after(now, callback):
        heapq.heappush(timers, (now, next(count), callback))

    progress.loaded()
    for number in range(3_000):
        after(number % 50, lambda now, number=number: clients[number]["log"].append([now]))
    for step in range(200_000):
        now, _, callback = heapq.heappop(timers)
        callback(now)
        number = step % 3_000
        client = clients[number]
        client["log"][:] = client["log"][-2:]
        after(now + 50, lambda now, client=client: client["log"].append([now]))
        if step % 100 == 0:
            progress.step()


main()
