#!/usr/bin/env python3
"""Preprocesses text for training and keeps every token: a script that builds what it keeps."""

import re

import progress

WORD = re.compile(r"\w+|[^\w\s]")
TEXT = "the quick brown fox, it jumps over 12 lazy dogs; then (again) it sleeps. "


def main():
    corpus = []
    for line in range(14_000):
        words = enumerate(WORD.findall(TEXT))
        tokens = [{"text": word, "id": hash(word) % 50_000, "at": (line, place)} for place, word in words]
        corpus.append({"line": line, "tokens": tokens})
        if line == 100:
            progress.loaded()
        progress.step()
    print(sum(len(document["tokens"]) for document in corpus))


main()
