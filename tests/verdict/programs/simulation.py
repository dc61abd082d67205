#!/usr/bin/env python3
"""Agents with neighbors exchange messages; each tick drops the last one's messages."""

import progress


class Agent:
    def __init__(self, number):
        self.number = number
        self.near = []
        self.inbox = []
        self.state = {"energy": number % 13}


def main():
    agents = [Agent(number) for number in range(15_000)]
    for agent in agents:
        agent.near = [agents[(agent.number + own) % len(agents)] for own in (1, 2)]
    progress.loaded()
    for tick in range(14):
        for agent in agents:
            for other in agent.near:
                other.inbox.append({"from": agent.number, "at": [tick]})
        for agent in agents:
            agent.state["energy"] += len(agent.inbox)
            agent.inbox = []
        progress.step()


main()
