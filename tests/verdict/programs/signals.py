#!/usr/bin/env python3
"""Views connect their methods to a model's signals: a view and what it observes refer to each other."""

import weakref

import progress


class Signal:
    def __init__(self):
        self.receivers = []

    def connect(self, method):
        self.receivers.append(weakref.WeakMethod(method) if progress.fixed("weak") else lambda: method)

    def send(self, value):
        for receiver in self.receivers:
            receiver()(value)


class View:
    def __init__(self, fields):
        self.changed = Signal()
        self.values = [{"field": field} for field in range(fields)]
        self.changed.connect(self.refresh)

    def refresh(self, value):
        self.values[0]["field"] = value


def main():
    progress.loaded()
    for step in range(60_000):
        view = View(12)
        view.changed.send(step)
        if progress.fixed("clear"):
            view.changed.receivers.clear()
        progress.step()


main()
