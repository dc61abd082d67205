#!/usr/bin/env python3
"""Nothing to gain: buffers and strings, which the collector does not track."""

import zlib

import progress


def main():
    progress.loaded()
    block = bytes(range(256)) * 400
    for step in range(800):
        packed = zlib.compress(block, 1)
        text = " ".join(str(number) for number in range(2_000))
        block = zlib.decompress(packed)
        assert len(text.encode()) > 0
        progress.step()


main()
