"""What the environment reported of an episode, as a reward."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from prefrl.errors import did_you_mean
from prefrl.rewards.base import Reward
from prefrl.types import Rollout, Score


class Environment(Reward):
    """The source that `environment` makes."""

    def __init__(self, key: str) -> None:
        self.name, self.key = "environment", key

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._one(rollout) for rollout in rollouts]

    def _one(self, rollout: Rollout) -> Score:
        if "error" in rollout.info:
            return Score.failed(str(rollout.info["error"]))
        if self.key not in rollout.info:
            return Score.failed(
                f"the environment reported no {self.key!r}; it reported {', '.join(rollout.info) or 'nothing'}."
                f"{did_you_mean(self.key, rollout.info)}"
            )
        return _score(self.key, rollout.info[self.key], rollout)


def environment(key: str = "success") -> Environment:
    """The entry `key` of `rollout.info`: a number is paid at the end, a list of numbers one after every turn.

    The turns of a control policy are its actions. A rollout whose environment raised, an entry that is missing or
    something else, and a list of another length than the turns are errors, never a 0.
    """
    return Environment(key)


def _score(key: str, reported: Any, rollout: Rollout) -> Score:
    """A number as the value, a list of numbers as steps at each turn's last sampled token."""
    if isinstance(reported, Real):
        return Score(value=float(reported), parts={key: float(reported)})
    if not isinstance(reported, list | tuple) or not all(isinstance(r, Real) for r in reported):
        return Score.failed(f"the environment reported {key}={reported!r}; expected a number, or one for every turn")
    ends = _turn_ends(rollout)
    if len(reported) != len(ends):
        return Score.failed(f"the environment reported {len(reported)} {key!r} for {len(ends)} turns")
    rewards = [float(r) for r in reported]
    return Score(steps=tuple(zip(ends, rewards, strict=True)), parts={key: sum(rewards)})


def _turn_ends(rollout: Rollout) -> list[int]:
    """Index of the last sampled token of every turn."""
    sampled = [i for i, mine in enumerate(rollout.mask) if mine]
    if rollout.observations is not None:
        return sampled
    spans = rollout.turns or ((0, len(rollout.mask)),)
    return [max(i for i in sampled if start <= i < end) for start, end in spans]
