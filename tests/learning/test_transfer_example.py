"""The claim of examples/07_transfer.py: all imitate, only a reward of the state alone is worth anything elsewhere."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

ROOT = Path(__file__).parents[2]


def test_the_example_prints_the_figures_and_draws_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["07_transfer.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "07_transfer.py"), run_name="__main__")
    printed = capsys.readouterr().out
    lines = {line[:24].strip(): line[24:].split() for line in printed.splitlines()[2:]}
    there = {name: float(cells[-1]) for name, cells in lines.items()}
    assert there == {
        "the true reward": pytest.approx(11.909, abs=0.001),
        "AIRL, g(s)": pytest.approx(11.909, abs=0.01),
        "AIRL, g(s, a)": pytest.approx(0.515, abs=0.01),
        "GAIL": pytest.approx(0.246, abs=0.01),
        "the old policy, copied": pytest.approx(0.515, abs=0.001),
        "any action": pytest.approx(0.246, abs=0.001),
    }
    imitated = [cells for name, cells in lines.items() if name.startswith(("AIRL", "GAIL"))]
    assert all(float(here) == pytest.approx(13.848, abs=0.001) and float(kl) < 1e-10 for here, kl, _ in imitated)
    assert printed.startswith("A state-only reward can be recovered up to a constant")
    picture = imread(tmp_path / "transfer.png")
    assert picture.shape[1] > 1500 and np.ptp(picture[..., :3]) > 0.5
