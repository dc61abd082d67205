#!/usr/bin/env python3
"""Four threads handle requests over one cache."""

import threading

import progress


def handle(cache, first):
    for step in range(1_200):
        for number in range(60):
            document = {"id": number, "items": [{"k": [index]} for index in range(8)]}
            document["self"] = document["items"]
            cache[(first, number)] = document
        progress.step()


def main():
    cache = {(-1, number): {"id": number, "items": [number]} for number in range(80_000)}
    progress.loaded()
    threads = [threading.Thread(target=handle, args=(cache, first)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
