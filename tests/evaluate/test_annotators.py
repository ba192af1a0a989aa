"""The report of annotators: which figures there are, and who is in them."""

from __future__ import annotations

from typing import Any

import pytest

from prefrl.data.comparisons import Label
from prefrl.evaluate.annotators import annotator_report


def label(item: str, person: str, outcome: Any, strength: str = "", **details: Any) -> Label:
    return Label(
        id=f"{item}/{person}",
        item=item,
        annotator=person,
        version=1,
        outcome=outcome,
        strength=strength,
        details=details,
    )


def test_nobody_said_anything() -> None:
    report = annotator_report([])
    assert not report.people
    assert [c.undefined for c in report.agreement] == ["nobody rated anything yet"] * 3
    assert report.truth.undefined == "nobody rated anything yet" and report.kappas == {}


def test_labels_of_reviewers_who_decide_are_in_no_figure() -> None:
    said = [
        label("1", "ann", "first"),
        label("1", "bob", "second"),
        label("2", "ann", "first"),
        label("2", "bob", "first"),
    ]
    decided = [*said, label("1", "ruth", "first", adjudication=True)]
    plain, with_ruth = annotator_report(said), annotator_report(decided)
    assert with_ruth.adjudicated == 1 and [p.name for p in with_ruth.people] == ["ann", "bob"]
    assert with_ruth.agreement == plain.agreement and plain.agreement[0].value == 0.5


def test_skips_are_counted_apart() -> None:
    (ann,) = annotator_report([label("1", "ann", "first", active_ms=3000), label("2", "ann", "skip")]).people
    assert (ann.labels, ann.skips) == (1, 1)
    assert ann.worker is None and ann.noisy is None and ann.gold is None and ann.concerns == {}


def test_graded_preferences_and_steps_have_coefficients_of_their_own() -> None:
    said = [
        label("1", "ann", "first", "clearly"),
        label("1", "bob", "first", "slightly"),
        label("2", "ann", "second", "clearly"),
        label("2", "bob", "second", "clearly"),
        label("s", "ann", "steps", ratings=[1, -1]),
        label("s", "bob", "steps", ratings=[1, -1]),
    ]
    report = annotator_report(said, strengths=("slightly", "clearly"))
    assert [c.name for c in report.agreement] == [
        "raw agreement",
        "Fleiss' kappa",
        "Krippendorff's alpha, nominal",
        "Krippendorff's alpha, ordinal, of graded preferences",
        "Krippendorff's alpha, ordinal, of steps",
    ]
    grades, steps = report.agreement[3:]
    # One -2, one -1, two 2: their middles in the order of all ratings are .5, 1.5 and 3, and distances differ by those.
    observed, expected = 2 * 1.0, 2 * (1 * 1 * 1.0 + 1 * 2 * 6.25 + 1 * 2 * 2.25)
    assert grades.value == pytest.approx(1 - 3 * observed / expected)
    assert steps.value == 1.0 and steps.items == 2
    assert {p.name: p.noisy.votes for p in report.people if p.noisy} == {"ann": 2, "bob": 2}
