#!/usr/bin/env python3
"""Reads JSON lines into a list that is kept until the end, and writes a summary."""

import json

import progress


def main():
    user = {"name": "n", "roles": ["a", "b"]}
    lines = [json.dumps({"id": number, "user": user, "values": [number, {"x": number}]}) for number in range(400)]
    progress.loaded()
    documents = []
    for step in range(150):
        documents += [json.loads(line) for line in lines]
        progress.step()
    print(len(documents))


main()
