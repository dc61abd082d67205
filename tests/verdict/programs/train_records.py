#!/usr/bin/env python3
"""Training with marked steps over a data set of Python objects; a step makes no cycles."""

import progress


class Sample:
    def __init__(self, number):
        self.number = number
        self.tokens = [number, number + 1]
        self.meta = {"source": number % 7}


def step(samples):
    batch = [{"tokens": list(sample.tokens), "source": [sample.meta["source"]]} for sample in samples]
    loss = sum(len(row["tokens"]) for row in batch)
    loss += sum(value * value % 7 for value in range(3_000))
    progress.step()
    return loss


def main():
    data = [Sample(number) for number in range(60_000)]
    progress.loaded()
    for number in range(700):
        step(data[number * 60 % 40_000 :][:300])


main()
