#!/usr/bin/env python3
"""Sessions of an object-relational mapper: session and entities refer to each other, one session a request."""

import weakref

import progress


class Entity:
    def __init__(self, session, key, row):
        self.session = weakref.ref(session) if progress.fixed("weak") else session
        self.key = key
        self.row = row
        self.changes = {}


class Session:
    def __init__(self):
        self.identities = {}

    def get(self, key):
        if key not in self.identities:
            self.identities[key] = Entity(self, key, {"id": key, "name": "n", "links": [key]})
        return self.identities[key]

    def close(self):
        if progress.fixed("clear"):
            self.identities.clear()


def main():
    mappings = [{"table": number, "columns": [number, [number]]} for number in range(60_000)]
    progress.loaded()
    for request in range(6_000):
        session = Session()
        for key in range(40):
            session.get(key).changes["seen"] = request
        session.close()
        progress.step()
    return mappings


main()
