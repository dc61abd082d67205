#!/usr/bin/env python3
"""An asyncio server without a network: short tasks, some that fail, over a table of sessions that grows slowly."""

import asyncio

import progress


async def request(sessions, number):
    await asyncio.sleep(0)
    if number % 5 == 0:
        raise LookupError(number)
    sessions[number] = {"number": number, "history": [{"at": number}]}


async def main():
    sessions = {number: {"number": number, "history": [{"at": 0}]} for number in range(100_000)}
    progress.loaded()
    for step in range(1_200):
        await asyncio.gather(*(request(sessions, step * 40 + own) for own in range(40)), return_exceptions=True)
        progress.step()


asyncio.run(main())
