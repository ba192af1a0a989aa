"""What the verifiers share: one rollout at a time, a gold column, and the parts `parsed` and `correct`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prefrl.errors import RewardError, did_you_mean
from prefrl.rewards.base import Reward
from prefrl.types import Rollout, Score


class Verifier(Reward):
    """A source that checks each rollout alone."""

    def __init__(self, name: str, check: Callable[[Rollout], Score]) -> None:
        self.name = name
        self.check = check

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self.check(rollout) for rollout in rollouts]


def graded(*, parsed: bool, correct: bool) -> Score:
    """1 or 0 with parts: mean(parsed) is the parse rate, sum(correct) / sum(parsed) the accuracy given it."""
    return Score(value=float(correct), parts={"parsed": float(parsed), "correct": float(correct)})


def gold_of(rollout: Rollout, column: str, source: str) -> Any:
    """The dataset column of a rollout's prompt; raises RewardError listing the columns there are."""
    columns = rollout.prompt.columns
    if column not in columns:
        raise RewardError(
            f"reward {source!r} needs the dataset column {column!r}, which prompt {rollout.prompt.id!r} does "
            f"not have; its columns: {', '.join(columns) or 'none'}.{did_you_mean(column, columns)}"
        )
    return columns[column]
