#!/usr/bin/env python3
"""Each request gets a deep copy of the settings: containers that reference counts free."""

import copy

import progress


def main():
    catalog = [{"product": number, "prices": [number]} for number in range(90_000)]
    settings = {str(number): {"on": True, "limits": [1, 2, {"x": number}]} for number in range(60)}
    progress.loaded()
    for step in range(900):
        own = copy.deepcopy(settings)
        own["0"]["on"] = False
        progress.step()
    return catalog


main()
