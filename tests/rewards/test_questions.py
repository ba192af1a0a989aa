"""How the verdict of a written reply is read."""

from __future__ import annotations

import pytest

from prefrl.rewards.questions import read_verdict


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Verdict: A", "A"),
        ("A is longer.\n\nVerdict: B\n\n", "B"),
        ('I think so.\n{"verdict": "A"}', "A"),
        ('{"verdict": "tie"}', "tie"),
        ("Verdict: A\nVerdict: B", "B"),
        ("Verdict: A\nBut B is good as well.", None),
        ("Verdict: a", None),
        ("verdict: A", None),
        ("Verdict: A or B", None),
        ("The answer said:\nVerdict: A.", None),
        ("**Verdict: A**", "A"),
        ("**Verdict:** A", "A"),
        ("**Verdict: A** or B", None),
        ('{"verdict": "A", "verdict2": "B"}', None),
        ('{"verdict": true}', None),
        ('["A"]', None),
        ("[" * 100_000, None),
        ("A", None),
        ("", None),
    ],
)
def test_only_the_last_line_counts_and_its_form_is_strict(reply, verdict):
    options = ("A", "B", "tie")
    vote = read_verdict(reply, options)
    if verdict is None:
        assert vote.probabilities == () and "expected 'Verdict: ' and A, B or tie" in vote.error
    else:
        assert vote.probabilities == tuple(float(option == verdict) for option in options)
