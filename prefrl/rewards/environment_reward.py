"""What the environment reported of an episode, as a reward."""

from __future__ import annotations

from numbers import Real
from typing import Any

from prefrl.errors import did_you_mean
from prefrl.rewards.verifiers.common import Verifier
from prefrl.types import Rollout, Score


def environment(key: str = "success") -> Verifier:
    """The entry `key` of `rollout.info`: a number is paid at the end, a list of numbers one after every turn.

    The turns of a control policy are its actions. A rollout whose environment raised, an entry that is missing or
    something else, and a list of another length than the turns are errors, never a 0.
    """

    def check(rollout: Rollout) -> Score:
        if "error" in rollout.info:
            return Score.failed(str(rollout.info["error"]))
        if key not in rollout.info:
            return Score.failed(
                f"the environment reported no {key!r}; it reported {', '.join(rollout.info) or 'nothing'}."
                f"{did_you_mean(key, rollout.info)}"
            )
        return _score(key, rollout.info[key], rollout)

    return Verifier("environment", check)


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
