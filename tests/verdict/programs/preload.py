#!/usr/bin/env python3
"""A server that loads its application, then forks workers, which serve requests from a pipe."""

import multiprocessing

import progress

APPLICATION = []


def serve(pipe):
    while (request := pipe.recv()) is not None:
        reply = [{"item": index, "request": [request]} for index in range(600)]
        pipe.send(len(reply))
        progress.step()
    pipe.close()


def main():
    APPLICATION.extend({"route": number, "handlers": [number, [number]]} for number in range(100_000))
    progress.loaded()
    context = multiprocessing.get_context("fork")
    workers = []
    for _ in range(3):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs,))
        process.start()
        workers.append((process, ours))
    for request in range(250):
        for _, pipe in workers:
            pipe.send(request)
        for _, pipe in workers:
            pipe.recv()
    for process, pipe in workers:
        pipe.send(None)
        process.join()


if __name__ == "__main__":
    main()
