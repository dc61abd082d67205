#!/usr/bin/env python3
"""A service that mostly waits: its share of time in pauses is small, its longest pause is not."""

import time

import progress


def main():
    sessions = {number: {"id": number, "log": [[number]]} for number in range(250_000)}
    progress.loaded()
    for request in range(500):
        reply = [{"id": index, "x": [index]} for index in range(600)]
        sessions[request] = reply[0]
        time.sleep(0.004)
        progress.step()


main()
