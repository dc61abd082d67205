"""Tests for pytest and tox to run."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "scripts"))
import work


@pytest.mark.parametrize("count", range(24))
def test_work(count):
    assert work.work(500 * count) == 500 * count
