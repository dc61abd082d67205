"""Marks the units of work of the programs beside this file."""


def step():
    """One unit of work is done; the wrapper that applies a remedy replaces it."""
