#!/usr/bin/env python3
"""xml.dom.minidom: documents of a library whose nodes know their parents; unlink() breaks them up."""

import xml.dom.minidom

import progress


def main():
    text = "<list>" + "<item a='1'><name>n</name></item>" * 40 + "</list>"
    settings = [{"setting": number, "values": [number]} for number in range(30_000)]
    progress.loaded()
    for _ in range(800):
        document = xml.dom.minidom.parseString(text)
        assert len(document.getElementsByTagName("item")) == 40
        if progress.fixed("clear"):
            document.unlink()
        progress.step()
    return settings


main()
