"""The example about length: what its documentation says of it holds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "03_length_bias.py"


@pytest.mark.slow
def test_the_penalty_takes_the_bias_out(tmp_path):
    figure = tmp_path / "length.png"
    found = runpy.run_path(str(EXAMPLE))["main"](str(figure))
    plain, corrected = found[0.0], found[10.0]
    assert 0.35 < plain[0] < 0.42
    assert abs(corrected[0]) < 0.05
    assert corrected[1] - plain[1] >= 0.08
    assert figure.stat().st_size > 1000
