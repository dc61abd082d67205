#!/usr/bin/env python3
"""Columns of Python objects: rows become columns, are grouped, and joined again; all of it is kept."""

import progress


def group(column, key):
    groups = {}
    for value, own in zip(column, key):
        groups.setdefault(own, []).append(value)
    return groups


def main():
    rows = [{"user": number % 700, "at": (number, number % 24), "tags": [number % 5]} for number in range(120_000)]
    progress.loaded()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    frames = []
    for turn in range(4):
        grouped = group(columns["at"], columns["user"])
        frames.append([{"user": user, "seen": list(at), "turn": turn} for user, at in grouped.items()])
        frames.append([[user, (hour, turn)] for user, (_, hour) in zip(columns["user"], columns["at"])])
        progress.step()
    print(len(frames))


main()
