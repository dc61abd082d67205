#!/usr/bin/env python3
"""Training with marked steps: each step records operations as closures that refer to their results."""

import random
import weakref

import progress


class Value:
    def __init__(self, data, parents=()):
        self.data, self.parents, self.grad = data, parents, 0.0
        self.back = None

    def __mul__(self, other):
        result = Value(self.data * other.data, (self, other))
        own = weakref.ref(result) if progress.fixed("weak") else lambda: result

        def back():
            self.grad += other.data * own().grad
            other.grad += self.data * own().grad

        result.back = back
        return result

    def __add__(self, other):
        result = Value(self.data + other.data, (self, other))
        own = weakref.ref(result) if progress.fixed("weak") else lambda: result

        def back():
            self.grad += own().grad
            other.grad += own().grad

        result.back = back
        return result


def step(weights, batch, rate):
    for row in batch:
        made, total = [], Value(0.0)
        for weight, value in zip(weights, row):
            made.append(weight * Value(value))
            total = total + made[-1]
            made.append(total)
        total.grad = 1.0
        for value in reversed(made):
            value.back()
        if progress.fixed("clear"):
            for value in made:
                value.back = None
    for weight in weights:
        weight.data -= rate * weight.grad
        weight.grad = 0.0
    progress.step()


def main():
    rng = random.Random(1)
    records = [{"id": number, "features": [rng.random() for _ in range(16)]} for number in range(30_000)]
    weights = [Value(rng.random()) for _ in range(16)]
    progress.loaded()
    for number in range(300):
        step(weights, [record["features"] for record in records[number * 25 : number * 25 + 25]], 0.01)


main()
