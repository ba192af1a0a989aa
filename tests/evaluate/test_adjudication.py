"""Who has the last word on an item."""

from __future__ import annotations

from typing import Any

import pytest

from prefrl.data.comparisons import Label
from prefrl.evaluate.adjudication import independent, settle, unsettled


def label(person: str, outcome: Any, *, item: str = "1", time: str = "1", **details: Any) -> Label:
    return Label(
        id=f"{item}/{person}", item=item, annotator=person, version=1, outcome=outcome, time=time, details=details
    )


def votes(*outcomes: str) -> list[Label]:
    return [label(f"p{k}", outcome) for k, outcome in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "outcome", "means"),
    [
        (("first", "first"), "first", "unanimous"),
        (("first", "second", "first"), "first", "majority"),
        (("first", "second"), None, "split"),
        (("first", "second", "tie"), None, "split"),
        (("skip", "second"), "second", "unanimous"),
        (("skip", "skip"), None, "nobody"),
        ((), None, "nobody"),
    ],
)
def test_without_a_reviewer(outcomes: tuple[str, ...], outcome: str | None, means: str) -> None:
    found = settle(votes(*outcomes))
    assert (found.outcome, found.means, found.by) == (outcome, means, "")


def test_a_reviewer_wins_over_everybody() -> None:
    said = [*votes("first", "first", "tie"), label("ruth", "second", adjudication=True)]
    found = settle(said)
    assert (found.outcome, found.means, found.by) == ("second", "adjudicated", "ruth")
    assert found.votes == {"first": 2, "tie": 1}  # of the annotators
    later = label("rob", "tie", time="2", adjudication=True)
    assert settle([later, *said]).by == "rob"
    assert independent([later, *said]) == said[:3]


def test_a_reviewer_who_skips_decides_nothing() -> None:
    assert settle([*votes("first", "first"), label("ruth", "skip", adjudication=True)]).means == "unanimous"


def test_unsettled_items_are_those_nobody_decided() -> None:
    said = [
        label("ann", "first", item="split"),
        label("bob", "second", item="split"),
        label("ann", "first", item="same"),
        label("bob", "first", item="same"),
        label("ann", "first", item="done"),
        label("bob", "second", item="done"),
        label("ruth", "first", item="done", adjudication=True),
    ]
    assert unsettled(said) == {"split": 1.0}
