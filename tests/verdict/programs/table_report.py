#!/usr/bin/env python3
"""A report from a table in comma-separated form: dictionaries of each row, kept and grouped by month."""

import csv
import io

import progress


def main():
    text = "day,city,amount\n" + "".join(f"{day % 365},c{day % 40},{day % 97}\n" for day in range(110_000))
    progress.loaded()
    months = {}
    for row in csv.DictReader(io.StringIO(text)):
        months.setdefault(int(row["day"]) // 31, []).append(row)
    for month, rows in months.items():
        sum(float(row["amount"]) for row in rows)
        progress.step()
    print(len(months))


main()
