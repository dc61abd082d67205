#!/usr/bin/env python3
"""asyncio: producers and consumers with queues, over the sessions of many clients."""

import asyncio

import progress


async def produce(queue, count):
    for number in range(count):
        await queue.put({"number": number, "body": [number]})
    await queue.put(None)


async def consume(queue, sessions):
    while (message := await queue.get()) is not None:
        sessions[message["number"] % len(sessions)] = message
        if message["number"] % 50 == 0:
            progress.step()


async def main():
    sessions = {number: {"number": number, "body": [0]} for number in range(70_000)}
    progress.loaded()
    for _ in range(12):
        queues = [asyncio.Queue(10) for _ in range(4)]
        tasks = [produce(queue, 1_200) for queue in queues] + [consume(queue, sessions) for queue in queues]
        await asyncio.gather(*tasks)


asyncio.run(main())
