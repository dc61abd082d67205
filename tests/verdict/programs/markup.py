#!/usr/bin/env python3
"""Reads markup by html.parser into elements with parent links; a window of pages stays."""

import collections
import html.parser
import weakref

import progress


class Element:
    def __init__(self, tag, parent):
        self.tag = tag
        self.parent = parent
        self.children = []
        self.attributes = {}


class Builder(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = Element("page", None)
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        above = self.open[-1]
        element = Element(tag, weakref.ref(above) if progress.fixed("weak") else above)
        element.attributes.update(attrs)
        above.children.append(element)
        self.open.append(element)

    def handle_endtag(self, tag):
        self.open.pop()


def clear(element):
    for child in element.children:
        clear(child)
    element.children.clear()


def main():
    page = "<ul class=menu>" + "<li id=x><a href=y><b>z</b></a></li>" * 40 + "</ul>"
    window = collections.deque()
    progress.loaded()
    for step in range(500):
        builder = Builder()
        builder.feed(page)
        window.append(builder.root)
        if len(window) > 60:
            oldest = window.popleft()
            if progress.fixed("clear"):
                clear(oldest)
        progress.step()


main()
