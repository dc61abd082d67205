#!/usr/bin/env python3
"""Makes a class for each message, as schema libraries do; every class is a cycle by itself."""

import progress

KNOWN = {}


def message(fields):
    if progress.fixed("cache"):
        if fields not in KNOWN:
            KNOWN[fields] = type("Message", (), dict.fromkeys(fields))
        return KNOWN[fields]
    return type("Message", (), dict.fromkeys(fields))


def main():
    schemas = [{"schema": number, "fields": [number]} for number in range(50_000)]
    progress.loaded()
    for step in range(2_000):
        for number in range(20):
            one = message(("id", "name", f"extra{number}"))()
            one.id = step
        progress.step()
    return schemas


main()
