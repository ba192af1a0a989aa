"""What is taken for the answer of an item whose annotators disagree: a reviewer's word, or else what most say.

A reviewer decides by a label of their own, which the store marks by `adjudication` among its details: it is kept like
any other, names who made it, and can be changed, which makes a new version. It was made with the votes in view, so that
no figure of agreement counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prefrl.data.comparisons import Label
from prefrl.evaluate.ratings import choices, disputed, is_choice

Means = Literal["adjudicated", "unanimous", "majority", "split", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The answer of an item.

    outcome  None where votes are split evenly, or where there are none
    by       the reviewer who decided; empty where nobody had to
    votes    of the annotators, by outcome, the most frequent first
    """

    outcome: str | None
    means: Means
    by: str
    votes: Mapping[str, int]


def adjudicates(label: Label) -> bool:
    """Whether the label decides over those of others."""
    return bool(label.details.get("adjudication", False))


def independent(labels: Iterable[Label]) -> list[Label]:
    """Labels of people who did not see what others said."""
    return [label for label in labels if not adjudicates(label)]


def settle(labels: Sequence[Label]) -> Settled:
    """The answer of one item, of its live labels: the last adjudicating one, or what more people say than any other.

    Skips and ratings of steps are no votes.
    """
    said = [label for label in labels if is_choice(label)]
    votes = Counter(label.outcome for label in independent(said))
    ranked: dict[str, int] = dict(votes.most_common())
    words = list(filter(adjudicates, said))
    if words:
        last = max(words, key=lambda label: label.time)
        return Settled(outcome=last.outcome, means="adjudicated", by=last.annotator, votes=ranked)
    if not ranked:
        return Settled(outcome=None, means="nobody", by="", votes=ranked)
    (best, most), *others = ranked.items()
    if not others:
        return Settled(outcome=best, means="unanimous", by="", votes=ranked)
    tied = others[0][1] == most
    return Settled(outcome=None if tied else best, means="split" if tied else "majority", by="", votes=ranked)


def unsettled(labels: Sequence[Label]) -> dict[str, float]:
    """Items whose annotators disagree and that nobody adjudicated, the most disputed first; see `ratings.disputed`."""
    decided = {label.item for label in labels if adjudicates(label)}
    return disputed(choices(label for label in independent(labels) if label.item not in decided))
