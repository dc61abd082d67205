#!/usr/bin/env python3
"""Closures over a heap of constant size: each step builds a graph of functions that refer to each
other, runs it, and drops it as cyclic garbage."""

import weakref

import progress


class Node:
    def __init__(self, value, parents):
        self.value = value
        self.parents = parents
        self.grad = 0.0

        own = weakref.ref(self) if progress.fixed("weak") else lambda: self

        def back():
            node = own()
            for parent in node.parents:
                parent.grad += node.grad

        self.back = back


def graph(width, depth):
    layer = [Node(float(index), ()) for index in range(width)]
    nodes = list(layer)
    for _ in range(depth):
        layer = [Node(left.value + right.value, (left, right)) for left, right in zip(layer, layer[1:])]
        nodes += layer
    return nodes


def main():
    table = [{"row": row, "cells": [row, [row]]} for row in range(80_000)]
    progress.loaded()
    for _ in range(360):
        nodes = graph(40, 20)
        nodes[-1].grad = 1.0
        for node in reversed(nodes):
            node.back()
        table[len(nodes)]["cells"][0] = nodes[-1].value
        if progress.fixed("clear"):
            for node in nodes:
                node.back = None
        progress.step()


main()
