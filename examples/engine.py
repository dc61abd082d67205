#!/usr/bin/env python3
"""An inference engine in three processes, as vLLM is built, with nothing but the standard library.

The API server has an asyncio loop. It hands each request to the engine core over a socket; the core decides what each
step computes, and waits for its worker over another. The core keeps the objects of all finished requests, so that
its collections take long. A process that asks is the fourth.

    python examples/engine.py [--requests 1500] [--kept 200000]
"""

import argparse
import asyncio
import json
import multiprocessing.connection
import pathlib
import random
import subprocess
import sys
import tempfile
import time

STEPS = 3
# What is kept of each token.
LOGPROBS = 40


class Request:
    def __init__(self, number):
        self.number = number
        self.left = STEPS
        self.tokens = []


def worker(folder):
    """Computes: one message per step."""
    with multiprocessing.connection.Client(f"{folder}/worker") as core:
        while (batch := core.recv()) is not None:
            time.sleep(0.001)
            core.send([(number, random.randrange(50_000)) for number in batch])


def core(folder, kept):
    """Schedules: takes what has arrived, and computes a step for all of it."""
    finished = [{"request": number, "tokens": [number]} for number in range(kept)]
    with multiprocessing.connection.Listener(f"{folder}/worker") as listener:
        with multiprocessing.connection.Client(f"{folder}/core") as front, listener.accept() as computes:
            running = {}
            while True:
                while not running or front.poll():
                    if (number := front.recv()) is None:
                        computes.send(None)
                        return
                    running[number] = Request(number)
                computes.send(list(running))
                for number, token in computes.recv():
                    request = running[number]
                    others = [[token + at, -at / 7] for at in range(LOGPROBS)]
                    request.tokens.append({"token": token, "logprobs": others})
                    request.left -= 1
                    if not request.left:
                        finished.append(running.pop(number))
                        front.send((number, [token["token"] for token in request.tokens]))


async def serve(listener, ports):
    """Answers requests that it passes on."""
    engine = listener.accept()
    loop = asyncio.get_running_loop()
    waiting = {}

    def answered():
        number, tokens = engine.recv()
        waiting.pop(number).set_result(tokens)

    loop.add_reader(engine.fileno(), answered)

    async def answer(number, writer):
        waiting[number] = loop.create_future()
        engine.send(number)
        writer.write(json.dumps(await waiting[number]).encode() + b"\n")

    async def handle(reader, writer):
        answers = []
        while line := await reader.readline():
            answers.append(asyncio.create_task(answer(int(line), writer)))
        await asyncio.gather(*answers)
        writer.close()
        server.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    ports.put_nowait(server.sockets[0].getsockname()[1])
    async with server:
        try:
            await server.serve_forever()
        except asyncio.CancelledError:
            loop.remove_reader(engine.fileno())
            engine.send(None)


async def ask(port, requests):
    """Asks 200 times a second, whether answers come or not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(requests):
        writer.write(f"{number}\n".encode())
        await asyncio.sleep(random.expovariate(200))
    writer.write_eof()
    while await reader.readline():
        pass


async def api(folder, options):
    ports = asyncio.Queue()
    roles = [["core", "--kept", str(options.kept)], ["worker"]]
    with multiprocessing.connection.Listener(f"{folder}/core") as listener:
        processes = [await start(role, folder) for role in roles]
        server = asyncio.create_task(serve(listener, ports))
        asked = ["ask", "--port", str(await ports.get()), "--requests", str(options.requests)]
        processes.append(await start(asked, folder))
        await server
    for process in processes:
        await process.wait()


async def start(role, folder):
    return await asyncio.create_subprocess_exec(sys.executable, __file__, *role, "--folder", folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", nargs="?", default="api", choices=["api", "core", "worker", "ask"])
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--kept", type=int, default=200_000)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "core":
        core(options.folder, options.kept)
    elif options.role == "worker":
        until = time.monotonic() + 60
        while not pathlib.Path(options.folder, "worker").exists() and time.monotonic() < until:
            time.sleep(0.01)
        worker(options.folder)
    elif options.role == "ask":
        asyncio.run(ask(options.port, options.requests))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(api(folder, options))
        print(f"answered {options.requests} requests")


if __name__ == "__main__":
    main()
