#!/usr/bin/env python3
"""Sessions that nobody ends: each request leaves one behind, with what it read."""

import json

import progress

SESSIONS = {}


def main():
    body = json.dumps({"user": 1, "cart": [{"item": 1, "tags": ["a"]}] * 4})
    progress.loaded()
    for request in range(35_000):
        SESSIONS[request] = json.loads(body)
        if progress.fixed("bound") and len(SESSIONS) > 1_000:
            del SESSIONS[request - 1_000]
        if request % 20 == 0:
            progress.step()


main()
