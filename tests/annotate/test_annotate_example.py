"""The example of the labelling app runs by itself, and finds the taste of its simulated person."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from annotating import without_gradio

from prefrl.data.preferences import PreferenceStore

EXAMPLE = Path(__file__).parents[2] / "examples" / "06_annotate.py"


@pytest.mark.slow
def test_what_the_person_likes_is_labelled_exported_and_learnt(tmp_path, monkeypatch, capsys):
    without_gradio(monkeypatch)
    main = runpy.run_path(str(EXAMPLE))["main"]
    (polite, words, _), share = main(tmp_path)
    assert polite > 0.3 and words < -0.3
    assert share >= 0.9
    assert "60 labels by a simulated person" in capsys.readouterr().out
    with PreferenceStore(tmp_path / "preferences.db", create=False) as store:
        assert store.count_items() == 60 and store.check() == []
        sides = sum(bool(label.details["exchanged"]) for label in store.labels())
        assert 15 <= sides <= 45  # both sides are shown about as often
    assert main(tmp_path)[1] == share  # what was said is there when it is run again, and nothing is asked twice
    assert "0 labels by a simulated person" in capsys.readouterr().out
