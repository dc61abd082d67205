#!/usr/bin/env python3
"""A pool of two forked workers below a parent with a large heap; the work is in the workers."""

import multiprocessing

import progress

HEAP = []


class Document:
    def __init__(self, number):
        self.number = number
        self.links = []
        self.words = {str(word): [word] for word in range(12)}


def work(_):
    documents = [Document(number) for number in range(300)]
    for document in documents:
        document.links.append(documents[(document.number + 1) % len(documents)])
    if progress.fixed("clear"):
        for document in documents:
            document.links.clear()
    progress.step()
    return sum(len(document.words) for document in documents)


def main():
    HEAP.extend({"row": row, "cells": [row]} for row in range(120_000))
    progress.loaded()
    pool = multiprocessing.get_context("fork").Pool(2)
    print(sum(pool.imap_unordered(work, range(160), chunksize=8)))
    pool.close()
    pool.join()


if __name__ == "__main__":
    main()
