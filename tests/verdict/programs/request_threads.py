#!/usr/bin/env python3
"""Threads serve requests; each request's context and its handlers refer to each other."""

import queue
import threading

import progress


class Handler:
    def __init__(self, context, name):
        self.context = context
        self.name = name
        self.log = []


class Context:
    def __init__(self, number):
        self.number = number
        self.handlers = {name: Handler(self, name) for name in ("auth", "body", "reply")}


def serve(requests):
    while (number := requests.get()) is not None:
        context = Context(number)
        for handler in context.handlers.values():
            handler.log.append({"at": number})
        if progress.fixed("clear"):
            context.handlers.clear()
        progress.step()


def main():
    routes = [{"route": number, "parts": [number]} for number in range(50_000)]
    progress.loaded()
    requests = queue.SimpleQueue()
    threads = [threading.Thread(target=serve, args=(requests,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(120_000):
        requests.put(number)
    for _ in threads:
        requests.put(None)
    for thread in threads:
        thread.join()
    return routes


main()
