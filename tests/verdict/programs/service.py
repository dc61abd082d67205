#!/usr/bin/env python3
"""A JSON service: a cache of parsed documents of constant size, and requests that replace them.

Errors keep their traceback, whose frame keeps the error: that is its cyclic garbage.
"""

import json
import random

import progress


def document(rng, number):
    items = [{"id": item, "tags": ["a", "b"], "size": {"w": 1, "h": item}} for item in range(12)]
    return {"number": number, "items": items, "owner": {"name": str(rng.random())}}


def check(parsed):
    try:
        if parsed["number"] % 3 == 0:
            raise ValueError("a third of all requests are refused")
    except ValueError as error:
        kept = error  # error -> traceback -> frame -> error
        if progress.fixed("del"):
            del kept
        return False
    return True


def main():
    rng = random.Random(1)
    cache = {number: document(rng, number) for number in range(6_000)}
    progress.loaded()
    for request in range(9_000):
        number = rng.randrange(len(cache))
        parsed = json.loads(json.dumps(cache[number]))
        if check(parsed):
            cache[number] = parsed
        if request % 10 == 0:
            progress.step()


main()
