"""Labels as plain ratings: item -> person -> value, each person's last word on each item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prefrl.data.comparisons import Label
from prefrl.evaluate.coefficients import Value

_SIGNS = {"first": -1, "tie": 0, "second": 1}


def live(labels: Iterable[Label]) -> list[Label]:
    """The last version of every person's label on every item, in the order of first appearance."""
    last: dict[tuple[str, str], Label] = {}
    for label in labels:
        known = last.get((label.item, label.annotator))
        if known is None or label.version > known.version:
            last[label.item, label.annotator] = label
    return list(last.values())


def choices(labels: Iterable[Label]) -> dict[str, dict[str, Value]]:
    """What people chose, by name; skips and ratings of steps are no choices."""
    return _table((label.item, label.annotator, label.outcome) for label in labels if is_choice(label))


def is_choice(label: Label) -> bool:
    """Whether the label is one of a few outcomes that people can agree on."""
    return label.outcome not in ("skip", "steps")


def grades(labels: Iterable[Label], strengths: Sequence[str]) -> dict[str, dict[str, Value]]:
    """Preferences on their scale: -n (the first is best by far) ... 0 (a tie) ... n, for an ordinal coefficient.

    Two bad answers have no place on the scale and are left out, as are strengths that are not among `strengths`.
    """
    steps = {word: place for place, word in enumerate(strengths, start=1)}
    return _table(
        (label.item, label.annotator, _SIGNS[label.outcome] * steps.get(label.strength, 0))
        for label in labels
        if label.outcome == "tie" or (label.outcome in _SIGNS and label.strength in steps)
    )


def step_ratings(labels: Iterable[Label]) -> dict[str, dict[str, Value]]:
    """Ratings 1, 0 and -1 of every step; an item here is one step."""
    return _table(
        (f"{label.item}/{step}", label.annotator, int(rating))
        for label in labels
        if label.outcome == "steps"
        for step, rating in enumerate(label.details.get("ratings", ()))
        if rating is not None
    )


def by_person(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Labels of every person, in the order they came; people in the order of their names."""
    found: dict[str, list[Label]] = {}
    for label in labels:
        found.setdefault(label.annotator, []).append(label)
    return dict(sorted(found.items()))


def disputed(ratings: Mapping[str, Mapping[str, Value]]) -> dict[str, float]:
    """Items whose ratings differ, the most disputed first, with the share of pairs of ratings that do."""
    shares = {}
    for item, said in ratings.items():
        votes = list(said.values())
        n = len(votes)
        equal = sum(votes.count(vote) - 1 for vote in votes)
        if n > 1 and equal < n * (n - 1):
            shares[item] = 1 - equal / (n * (n - 1))
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def _table(rows: Iterable[tuple[str, str, Value]]) -> dict[str, dict[str, Value]]:
    table: dict[str, dict[str, Value]] = {}
    for item, person, value in rows:
        table.setdefault(item, {})[person] = value
    return table
