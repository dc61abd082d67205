#!/usr/bin/env python3
"""Parses sources over and over, keeps the latest trees, whose nodes know their parents."""

import ast
import pathlib
import sysconfig
import weakref

import progress


def parsed(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = weakref.ref(node) if progress.fixed("weak") else node
    return tree


def cleared(tree):
    for node in list(ast.walk(tree)):
        node.__dict__.pop("parent", None)


def main():
    paths = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]
    texts = [path.read_text(encoding="utf-8", errors="ignore")[:12_000] for path in paths]
    kept = {}
    progress.loaded()
    for step in range(220):
        number = step * 7 % len(texts)
        if progress.fixed("clear") and number % 40 in kept:
            cleared(kept[number % 40])
        try:
            kept[number % 40] = parsed(texts[number].rpartition("\n\n\n")[0])
        except SyntaxError:
            pass
        progress.step()


main()
