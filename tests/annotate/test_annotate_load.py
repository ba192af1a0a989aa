"""A small version of the load test: everything that was acknowledged is there once, whatever went wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import annotate_load


@pytest.mark.slow
def test_accidents_under_load_lose_nothing_and_double_nothing(tmp_path):
    load = annotate_load.Load(
        people=8, labels=12, overlap=3, kills=1, duplicates=0.2, dropped=0.1, seconds=2.0, rate=4.0
    )
    wrong, measured = annotate_load.run(tmp_path, load)
    assert {name: number for name, number in wrong.items() if number} == {}
    assert measured["labels"] == 96
    assert measured["sent twice"] > 0 and measured["answers not read"] > 0 and measured["items left alone"] > 0
