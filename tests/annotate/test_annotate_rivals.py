"""What is said of other labelling apps is tried on ours in the same way, and found to be right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import annotate_rivals
from rivals import faults
from rivals.pairs import fifty
from rivals.tools import Annotate
from rivals.trainer import accepts


def test_the_pairs_are_fifty_different_questions_with_different_answers():
    pairs = fifty()
    assert len({pair.prompt for pair in pairs}) == 50
    assert all(pair.first != pair.second for pair in pairs)
    assert [sum(pair.wish == wish for pair in pairs) for wish in ("first", "second", "tie", "both_bad", "skip")] == [
        20,
        15,
        5,
        5,
        5,
    ]


@pytest.mark.slow
def test_every_fault_is_tried_and_none_is_found(tmp_path):
    findings = annotate_rivals.tried(Annotate(sys.executable, "ours"), tmp_path)
    assert len(findings) == len(faults.FAULTS) + 1
    assert {name: found.words for name, found in findings.items() if not found.good} == {}
    assert findings["A second vote from a stale page"].words == "409, the first one stays"


@pytest.mark.slow
def test_all_that_was_said_is_exported_right_and_trl_trains_on_it(tmp_path):
    filled = faults.fill(Annotate(sys.executable, "ours"), tmp_path)
    assert (filled.unsaid, filled.rows, filled.right, filled.wanted) == (0, 35, 35, 35)
    assert 10 <= filled.first_left <= 40
    assert accepts(filled.files[0], tmp_path) == ""
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "Q", "selected": "left"}\n' * 2)
    assert accepts(broken, tmp_path) != ""
