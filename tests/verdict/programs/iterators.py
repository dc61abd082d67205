#!/usr/bin/env python3
"""Pipelines of generators; each keeps itself in its frame by the object that drives it."""

import progress


class Pipeline:
    def __init__(self, values):
        self.values = values
        self.stage = self.run()
        next(self.stage)

    def run(self):
        yield None
        for value in self.values:
            yield {"value": value, "by": [self.values]}


def main():
    progress.loaded()
    for step in range(250_000):
        pipeline = Pipeline((1, 2, 3))
        next(pipeline.stage)
        if progress.fixed("clear"):
            pipeline.stage.close()
        elif progress.fixed("del"):
            pipeline.stage = None
        progress.step()


main()
