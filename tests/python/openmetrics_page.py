"""Parses a metrics page from stdin with the Prometheus project's own parser, and writes the result
as JSON.

[{"name", "type", "unit", "help", "samples": [[name, {label: value}, value]]}]; infinity is "inf".
Exits with the parser's error if there is one. Needs the package prometheus-client
(scripts/venv.sh metrics).
"""

import json
import sys

from prometheus_client.openmetrics import parser


def number(value):
    return value if value == value and abs(value) != float("inf") else str(value)


def main():
    families = [
        {
            "name": family.name,
            "type": family.type,
            "unit": family.unit,
            "help": family.documentation,
            "samples": [
                [sample.name, sample.labels, number(sample.value)]
                for sample in family.samples
            ],
        }
        for family in parser.text_string_to_metric_families(sys.stdin.read())
    ]
    seen = set()
    for family in families:
        for name, labels, _ in family["samples"]:
            key = (name, tuple(sorted(labels.items())))
            if key in seen:
                sys.exit(f"the same series twice: {key}")
            seen.add(key)
    json.dump(families, sys.stdout)


main()
