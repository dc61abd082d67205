#!/usr/bin/env python3
"""Trains a small neural network with nothing but the standard library.

A network of two hidden layers learns to separate two interleaved half moons.
The gradients come from an automatic differentiation engine of scalar nodes, and
the training set grows: every step adds noisy copies of its batch to a cache.

    python examples/train.py [--steps 220] [--batch 32] [--hidden 16] [--seed 1]
"""

import argparse
import math
import random
import time


class Value:
    """A number that remembers how it was made, so that gradients can flow back."""

    def __init__(self, data, parents=()):
        self.data = data
        self.grad = 0.0
        self.parents = parents
        self.children = []
        self.propagate = None
        for parent in parents:
            if parent.parents:  # inner nodes only: parameters outlive the graph
                parent.children.append(self)

    def __add__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data + other.data, (self, other))

        def propagate():
            self.grad += out.grad
            other.grad += out.grad

        out.propagate = propagate
        return out

    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data * other.data, (self, other))

        def propagate():
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad

        out.propagate = propagate
        return out

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -other

    def tanh(self):
        out = Value(math.tanh(self.data), (self,))

        def propagate():
            self.grad += (1.0 - out.data * out.data) * out.grad

        out.propagate = propagate
        return out

    def backward(self):
        """Adds d(self)/d(node) to the gradient of every node below."""
        order, seen, stack = [], set(), [(self, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((parent, False) for parent in node.parents)
        self.grad = 1.0
        for node in reversed(order):
            if node.propagate is not None:
                node.propagate()


def weighted_sum(weights, inputs, bias):
    """weights . inputs + bias as one node; inputs are nodes or plain numbers."""
    nodes = [value for value in inputs if isinstance(value, Value)]
    numbers = [value.data if isinstance(value, Value) else value for value in inputs]
    total = sum(weight.data * number for weight, number in zip(weights, numbers))
    out = Value(total + bias.data, [*weights, *nodes, bias])

    def propagate():
        bias.grad += out.grad
        for weight, number in zip(weights, numbers):
            weight.grad += number * out.grad
        if nodes:
            for weight, node in zip(weights, nodes):
                node.grad += weight.data * out.grad

    out.propagate = propagate
    return out


class Neuron:
    def __init__(self, inputs, rng):
        scale = 1.0 / math.sqrt(inputs)
        self.weights = [Value(rng.uniform(-scale, scale)) for _ in range(inputs)]
        self.bias = Value(0.0)

    def __call__(self, inputs):
        return weighted_sum(self.weights, inputs, self.bias).tanh()

    def parameters(self):
        return [*self.weights, self.bias]


class Network:
    """Fully connected layers of the given sizes."""

    def __init__(self, sizes, rng):
        self.layers = [
            [Neuron(inputs, rng) for _ in range(outputs)]
            for inputs, outputs in zip(sizes, sizes[1:])
        ]

    def __call__(self, inputs):
        for layer in self.layers:
            inputs = [neuron(inputs) for neuron in layer]
        return inputs[0]

    def parameters(self):
        return [p for layer in self.layers for neuron in layer for p in neuron.parameters()]


class Sample:
    """A labeled point, with the history of the points it was copied from."""

    def __init__(self, point, label, source=None):
        self.point = point
        self.label = label
        self.tags = {"label": label, "augmented": source is not None}
        self.source = source


def half_moons(count, rng):
    """Points of two interleaved half circles, labeled -1 and 1."""
    samples = []
    for index in range(count):
        angle = rng.uniform(0.0, math.pi)
        x, y, label = math.cos(angle), math.sin(angle), -1.0
        if index % 2:
            x, y, label = 1.0 - x, 0.5 - y, 1.0
        samples.append(Sample([x + rng.gauss(0, 0.1), y + rng.gauss(0, 0.1)], label))
    return samples


class Dataset:
    """The samples and their augmented copies, all cached in memory."""

    def __init__(self, samples, copies, rng):
        self.samples = samples
        self.copies = copies
        self.rng = rng

    def batch(self, size):
        chosen = self.rng.sample(self.samples, size)
        for sample in chosen:
            self.samples.extend(self.jittered(sample) for _ in range(self.copies))
        return chosen

    def jittered(self, sample):
        point = [coordinate + self.rng.gauss(0, 0.02) for coordinate in sample.point]
        return Sample(point, sample.label, source=sample)


def train_step(network, batch, learning_rate):
    """One step of gradient descent; returns (loss, share of right answers)."""
    loss, right = 0.0, 0
    for sample in batch:
        output = network(sample.point)
        error = output - sample.label
        sample_loss = error * error * (1.0 / len(batch))
        sample_loss.backward()
        loss += sample_loss.data
        right += (output.data > 0) == (sample.label > 0)
    for parameter in network.parameters():
        parameter.data -= learning_rate * parameter.grad
        parameter.grad = 0.0
    return loss, right / len(batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--copies", type=int, default=48, help="noisy copies per sample used")
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    rng = random.Random(options.seed)
    network = Network([2, options.hidden, options.hidden, 1], rng)
    dataset = Dataset(half_moons(10_000, rng), options.copies, rng)
    started = time.perf_counter()
    for step in range(1, options.steps + 1):
        batch = dataset.batch(options.batch)
        loss, accuracy = train_step(network, batch, options.learning_rate)
        if step == 1 or step % 25 == 0 or step == options.steps:
            print(
                f"step {step:4d}  loss {loss:.4f}  accuracy {accuracy:4.0%}  "
                f"samples {len(dataset.samples):7d}",
                flush=True,
            )
    print(f"trained for {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
