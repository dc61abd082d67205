#!/usr/bin/env python3
"""Parses and drops JSON documents over a constant index: containers without cycles."""

import json

import progress


def main():
    text = json.dumps([{"id": number, "tags": ["a", "b"], "at": {"x": number}} for number in range(400)])
    index = {number: {"id": number, "tags": [number]} for number in range(60_000)}
    progress.loaded()
    for step in range(1_200):
        documents = json.loads(text)
        index[step] = documents[0]
        progress.step()


main()
