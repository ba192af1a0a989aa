"""What several people say of one pair, as one word with a probability."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from prefrl.data.comparisons import Label
from prefrl.data.exporting.choices import Choices
from prefrl.data.reading import Problem

_DECIDED = ("first", "second")
_DIGITS = 9  # 2/3 is 1 - 1/3: whichever side comes first, the same bytes
_MOST_CERTAIN = 0.99  # nobody is believed to be right always, whatever their record


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What people say of a pair.

    outcome    first, second, tie or both_bad
    label      probability that the better one is the better one: 0.5 of a tie
    tie        probability that neither is
    weight     how sure the votes are of it, in [0, 1]
    agreement  share of the people who say just that
    voters     labels of the people who say that, then those of the others
    """

    outcome: str
    label: float
    tie: float
    weight: float
    agreement: float
    voters: tuple[Label, ...]

    @property
    def strength(self) -> str:
        """What most of those who agree call it; the first said of equally many, and nothing of a tie."""
        if self.outcome not in _DECIDED:
            return ""
        said = Counter(label.strength for label in self.voters if label.outcome == self.outcome)
        return max(said, key=lambda word: said[word], default="")


def verdict_of(labels: Sequence[Label], choices: Choices) -> Verdict:
    """The verdict of the labels of one pair that count.

    Each person's vote weighs log(r / (1 - r)) for a reliability r, so that with independent errors the label of a pair
    is the probability of its better side given all votes; without reliabilities it is the share of the votes.

    Raises:
        Problem: there is none, or one that is not wanted.
    """
    votes = [label for label in labels if label.outcome != "skip"]
    if not votes:
        raise Problem("skipped by everybody" if labels else "without a label")
    votes = [label for label in votes if _wanted(label.outcome, choices)] if choices.votes == "soft" else votes
    if not votes:
        raise Problem(_name(labels[0].outcome))
    first = _share(votes, choices)
    outcome = _winner(votes, first, choices)
    neither = sum(label.outcome not in _DECIDED for label in votes) / len(votes)
    tied = outcome not in _DECIDED
    agree = [label for label in votes if (label.outcome not in _DECIDED if tied else label.outcome == outcome)]
    sure = first if outcome == "first" else 1.0 - first
    soft = choices.votes == "soft"
    return Verdict(
        outcome=outcome,
        label=0.5 if tied else round(sure, _DIGITS) if soft else 1.0,
        tie=round(neither, _DIGITS) if soft else float(tied),
        weight=1.0 if tied else round(abs(2.0 * first - 1.0), _DIGITS),
        agreement=round(len(agree) / len(votes), _DIGITS),
        voters=(*agree, *(label for label in votes if label not in agree)),
    )


def _share(votes: Sequence[Label], choices: Choices) -> float:
    """Probability that the first one is better, given that one is."""
    decided = [label for label in votes if label.outcome in _DECIDED]
    if not choices.reliability or not decided:
        return sum(label.outcome == "first" for label in decided) / len(decided) if decided else 0.5
    odds = 0.0
    for label in decided:
        chance = choices.reliability.get(label.annotator, _usual(choices))
        chance = min(max(chance, 1.0 - _MOST_CERTAIN), _MOST_CERTAIN)
        odds += math.log(chance / (1.0 - chance)) * (1.0 if label.outcome == "first" else -1.0)
    return 1.0 / (1.0 + math.exp(-odds))


def _usual(choices: Choices) -> float:
    """Reliability of somebody of whom nothing is known: that of the others on the whole."""
    return sum(choices.reliability.values()) / len(choices.reliability)


def _winner(votes: Sequence[Label], first: float, choices: Choices) -> str:
    """The better side where shares are wanted and anybody chose one; otherwise what most say, as reliable as they are.

    Raises:
        Problem: it is a tie, or two bad ones, and those are not wanted; or as many say one thing as another.
    """
    said = Counter(label.outcome if label.outcome in _DECIDED else "neither" for label in votes)
    neither, decided = said.pop("neither", 0), max(said.values(), default=0)
    if decided and (choices.votes == "soft" or (decided > neither and first != 0.5)):
        return "first" if first >= 0.5 else "second"
    if decided >= neither:
        raise Problem("as many votes for one as for the other")
    outcome = "both_bad" if 2 * sum(label.outcome == "both_bad" for label in votes) > neither else "tie"
    if not _wanted(outcome, choices):
        raise Problem(_name(outcome))
    return outcome


def _wanted(outcome: str, choices: Choices) -> bool:
    how = {"tie": choices.ties, "both_bad": choices.both_bad}
    return how.get(outcome, "soft") == "soft"


def _name(outcome: str) -> str:
    return "called a tie" if outcome == "tie" else "called both bad"
