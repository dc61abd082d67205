#!/usr/bin/env python3
"""The first half builds dicts, the second computes on them with few containers."""

import progress


def main():
    rows = [{"id": number, "name": str(number), "tags": [number % 7]} for number in range(300_000)]
    progress.loaded()
    totals = [0] * 7
    for _ in range(6):
        for row in rows:
            totals[row["id"] % 7] += len(row["name"])
        progress.step()
    print(totals)


main()
