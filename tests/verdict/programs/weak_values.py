#!/usr/bin/env python3
"""A WeakValueDictionary of shared values: they end with their last user, without cycles."""

import weakref

import progress


class Value:
    def __init__(self, key):
        self.key = key
        self.parts = [key]


def main():
    shared = weakref.WeakValueDictionary()
    static = [{"row": row, "cells": [row]} for row in range(60_000)]
    progress.loaded()
    for step in range(2_000):
        users = []
        for number in range(120):
            key = number * step % 500
            value = shared.get(key)
            if value is None:
                value = shared[key] = Value(key)
            users.append([value])
        progress.step()
    return static


main()
