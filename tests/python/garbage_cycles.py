"""Cycles of known shapes, and the components of garbage by gc.get_referents.

    garbage_cycles.py planted      one or more cycles of each usual kind, in one collection
    garbage_cycles.py components   strongly connected components, counted here, then collected
    garbage_cycles.py linked N     a doubly linked list of N nodes

Prints one line of JSON. Does not depend on gctrace.
"""

import asyncio
import gc
import json
import logging
import sys
import time

from garbage import Node
from garbage import Slots
from garbage import linked
from garbage import mixed


class Trainer:
    def __init__(self):
        self.hooks = [self.on_step]

    def on_step(self):
        pass


class Tree:
    def __init__(self, parent=None):
        self.parent = parent
        self.children = []
        if parent is not None:
            parent.children.append(self)


def line_of(function):
    return function.__code__.co_firstlineno


def make_closure():
    def recursive(depth):
        return recursive(depth - 1)

    return line_of(recursive)


def make_default():
    held = []

    def function(own=held):
        pass

    held.append(function)
    return line_of(function)


def keep_exception():
    try:
        raise ValueError("kept")
    except ValueError as error:
        kept = error  # noqa: F841
    return line_of(keep_exception) + 2


def make_class():
    return line_of(type("Made", (), {"method": lambda self: self}).method)


def suspend():
    def generator():
        own = yield
        yield own

    one = generator()
    next(one)
    one.send(one)
    return line_of(generator) + 2


def cancel_task():
    async def work():
        task = asyncio.current_task()
        await asyncio.sleep(1000)
        return task

    async def main():
        asyncio.ensure_future(work())
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop._ready.clear()
    loop._scheduled.clear()
    loop.close()
    return line_of(work) + 2


def plant():
    """Makes the cycles; returns their lines."""
    lines = {}
    for _ in range(6):
        lines["closure"] = make_closure()
    for _ in range(5):
        Trainer()
    for _ in range(4):
        lines["exception"] = keep_exception()
    for _ in range(3):
        lines["class"] = make_class()
    lines["method"] = line_of(Trainer.on_step)
    lines["default"] = make_default()
    root = Tree()
    for _ in range(3):
        Tree(root)
    one, two = Slots(), Slots()
    one.one, two.two = two, one
    own = {}
    own["own"] = own
    numbered = {7: None}
    numbered[7] = [numbered]
    first = last = Node()
    for _ in range(99):
        last.next = Node()
        last = last.next
    last.next = first
    return lines


def planted():
    gc.disable()
    plant()
    suspend()
    cancel_task()
    gc.collect()
    lines = plant()
    begin = time.monotonic_ns()
    collected = gc.collect()
    end = time.monotonic_ns()
    lines["generator"] = suspend()
    gc.collect()
    lines["task"] = cancel_task()
    gc.collect()
    return {"begin": begin, "end": end, "collected": collected, "lines": lines}


def components(found):
    """Sizes of the strongly connected components with a cycle, and what only they refer to."""
    number = {id(own): at for at, own in enumerate(found)}
    edges = []
    for own in found:
        targets = [number.get(id(target)) for target in gc.get_referents(own)]
        edges.append([target for target in targets if target is not None])
    order, lowest, opened = {}, {}, []
    is_open, sizes, cyclic = set(), [], set()
    for root in range(len(found)):
        if root in order:
            continue
        path = [(root, 0)]
        while path:
            own, at = path.pop()
            if at == 0:
                order[own] = lowest[own] = len(order)
                opened.append(own)
                is_open.add(own)
            descended = False
            for next_at in range(at, len(edges[own])):
                target = edges[own][next_at]
                if target not in order:
                    path.append((own, next_at + 1))
                    path.append((target, 0))
                    descended = True
                    break
                if target in is_open:
                    lowest[own] = min(lowest[own], order[target])
            if descended:
                continue
            if path:
                parent = path[-1][0]
                lowest[parent] = min(lowest[parent], lowest[own])
            if lowest[own] == order[own]:
                members = []
                while not members or members[-1] != own:
                    members.append(opened.pop())
                is_open.difference_update(members)
                if len(members) > 1 or own in edges[own]:
                    sizes.append(len(members))
                    cyclic.update(members)
    reached, waiting = set(cyclic), list(cyclic)
    while waiting:
        for target in edges[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return len(sizes), sum(sizes), len(reached) - len(cyclic)


def compared():
    gc.disable()
    mixed(20)
    gc.collect()
    mixed(300)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = list(gc.garbage)
    gc.garbage.clear()
    count, objects, held = components(found)
    del found
    gc.collect()
    mixed(300)
    begin = time.monotonic_ns()
    collected = gc.collect()
    end = time.monotonic_ns()
    return {
        "count": count,
        "objects": objects,
        "held": held,
        "collected": collected,
        "begin": begin,
        "end": end,
    }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # asyncio's about the task that is never done
    if sys.argv[1] == "linked":
        result = linked(int(sys.argv[2]))
    else:
        result = {"planted": planted, "components": compared}[sys.argv[1]]()
    print(json.dumps(result))
