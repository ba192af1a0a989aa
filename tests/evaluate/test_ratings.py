"""Labels as ratings."""

from __future__ import annotations

from typing import Any

import pytest

from prefrl.data.comparisons import Label
from prefrl.evaluate.ratings import by_person, choices, disputed, grades, live, step_ratings


def label(item: str, person: str, outcome: Any, *, version: int = 1, strength: str = "", **details: Any) -> Label:
    return Label(
        id=f"{item}/{person}/{version}",
        item=item,
        annotator=person,
        version=version,
        outcome=outcome,
        strength=strength,
        details=details,
    )


def test_the_last_word_counts() -> None:
    said = [label("1", "ann", "first"), label("1", "bob", "tie"), label("1", "ann", "second", version=2)]
    assert choices(live(said)) == {"1": {"ann": "second", "bob": "tie"}}
    assert choices(live(reversed(said))) == {"1": {"ann": "second", "bob": "tie"}}


def test_skips_and_steps_are_no_choices() -> None:
    said = [label("1", "ann", "skip"), label("1", "bob", "steps"), label("1", "cat", "both_bad")]
    assert choices(said) == {"1": {"cat": "both_bad"}}


def test_grades_on_a_scale() -> None:
    words = ("slightly", "clearly", "much")
    said = [
        label("1", "ann", "first", strength="much"),
        label("1", "bob", "second", strength="slightly"),
        label("1", "cat", "tie"),
        label("1", "dan", "both_bad"),
        label("1", "eve", "first", strength="an old word"),
    ]
    assert grades(said, words) == {"1": {"ann": -3, "bob": 1, "cat": 0}}
    assert grades([label("1", "ann", "second")], ("",)) == {"1": {"ann": 1}}


def test_steps_are_items_of_their_own() -> None:
    said = [label("1", "ann", "steps", ratings=[1, -1, None]), label("1", "bob", "steps", ratings=[1, 0])]
    assert step_ratings(said) == {"1/0": {"ann": 1, "bob": 1}, "1/1": {"ann": -1, "bob": 0}}


def test_the_most_disputed_first() -> None:
    """Pairs of votes that differ: 2 of 3, 1 of 1, none, and a single vote."""
    table = {
        "two": {"a": "x", "b": "x", "c": "y"},
        "all": {"a": "x", "b": "y"},
        "none": {"a": "x", "b": "x"},
        "one": {"a": "x"},
    }
    assert list(disputed(table).items()) == [("all", 1.0), ("two", pytest.approx(2 / 3))]


def test_people_by_name() -> None:
    said = [label("1", "bob", "tie"), label("2", "ann", "tie"), label("3", "bob", "skip")]
    assert [(name, [x.item for x in theirs]) for name, theirs in by_person(said).items()] == [
        ("ann", ["2"]),
        ("bob", ["1", "3"]),
    ]
