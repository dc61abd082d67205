#!/usr/bin/env python3
"""A road map in memory, full of cycles that live; routes are found with heaps of tuples."""

import heapq

import progress


class Place:
    def __init__(self, number):
        self.number = number
        self.roads = []


def route(places, start, steps):
    seen, border = set(), [(0, start, ())]
    while border and len(seen) < steps:
        cost, number, path = heapq.heappop(border)
        if number in seen:
            continue
        seen.add(number)
        for length, place in places[number].roads:
            heapq.heappush(border, (cost + length, place.number, (number, path)))
    return cost


def main():
    places = [Place(number) for number in range(50_000)]
    for place in places:
        for own in (1, 7, 60):
            place.roads.append((own, places[(place.number + own) % len(places)]))
    progress.loaded()
    for step in range(300):
        route(places, step * 91, 500)
        progress.step()


main()
