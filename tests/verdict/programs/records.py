#!/usr/bin/env python3
"""A table of dataclasses of constant size; each step makes records that reference counts free."""

import dataclasses

import progress


@dataclasses.dataclass
class Sample:
    number: int
    features: list
    labels: dict


def main():
    table = [Sample(number, [number], {"y": number}) for number in range(120_000)]
    progress.loaded()
    for step in range(2_500):
        batch = [Sample(step, [index], {"y": index}) for index in range(300)]
        table[step % len(table)] = batch[0]
        sum(sample.number for sample in batch)
        progress.step()


main()
