#!/usr/bin/env python3
"""xml.etree: elements have no parents, so reference counts free each document."""

import xml.etree.ElementTree

import progress


def main():
    text = "<list>" + "<item a='1'><name>n</name><tag/></item>" * 150 + "</list>"
    index = {number: {"document": number, "words": [number]} for number in range(80_000)}
    progress.loaded()
    for step in range(1_500):
        root = xml.etree.ElementTree.fromstring(text)
        index[step]["words"].append(len(root))
        progress.step()


main()
