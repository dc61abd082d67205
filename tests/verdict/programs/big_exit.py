#!/usr/bin/env python3
"""Builds a large graph with the collector off; what is left of its cost is at the exit."""

import gc

import progress


class Word:
    def __init__(self, text):
        self.text = text
        self.near = []


def main():
    gc.disable()
    words = [Word(str(number)) for number in range(300_000)]
    for number, word in enumerate(words):
        word.near += [words[number - 1], words[number // 2]]
    progress.loaded()
    print(sum(len(word.near) for word in words))
    progress.step()
    globals()["kept"] = words


main()
