#!/usr/bin/env python3
"""Parses expressions into trees whose nodes know their parents, evaluates and drops them."""

import weakref

import progress


class Node:
    def __init__(self, kind, parent):
        self.kind = kind
        self.parent = weakref.ref(parent) if parent is not None and progress.fixed("weak") else parent
        self.children = []


def parse(text):
    root = node = Node("sum", None)
    above = [root]
    for character in text:
        if character == "(":
            child = Node("sum", node)
            node.children.append(child)
            above.append(child)
            node = child
        elif character == ")":
            above.pop()
            node = above[-1]
        else:
            node.children.append(Node(character, node))
    return root


def value(node):
    return sum(map(value, node.children)) if node.children else len(node.kind)


def clear(node):
    for child in node.children:
        clear(child)
    node.children.clear()


def main():
    grammar = [{"rule": number, "follows": [number]} for number in range(20_000)]
    text = "(ab(cd(e)f)g)" * 12
    progress.loaded()
    for step in range(4_000):
        tree = parse(text)
        value(tree)
        if progress.fixed("clear"):
            clear(tree)
        progress.step()
    return grammar


main()
