"""Best-of-n as a sampler: what a policy would say if its answers were picked by a reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from prefrl.config import SamplingConfig
from prefrl.errors import ConfigError, RewardError
from prefrl.rollout.sampler import Sampler
from prefrl.types import Prompt, Rollout, Score


class Scorer(Protocol):
    """A reward source, as far as picking needs it."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout, in the same order."""
        ...


class BestOf:
    """Every completion is the best by `reward` of `n` that `sampler` drew; of equal ones the first.

    `info["best_of"]` of the winner has its `score`, its `place` among the `n` draws (from 0) and how many draws were
    `unscored`. Those never win; where no draw has a score, the first is returned with `info["error"]`, which
    every reward source counts as an error.

    The log-probs of a rollout are still those of `sampler`, from which best-of-n lies up to `log n - (n - 1) / n` nats
    away: for evaluation and for supervised learning, not for policy gradients.

    Raises:
        ConfigError: n is below 1.
    """

    def __init__(self, sampler: Sampler, reward: Scorer, n: int) -> None:
        if n < 1:
            raise ConfigError(f"best of {n}: expected n to be 1 or more")
        self.sampler, self.reward, self.n = sampler, reward, n

    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Draw `n` completions of every prompt, each the best of `self.n`.

        Raises:
            RewardError: the reward did not give one score per rollout.
        """
        drawn = self.sampler.sample(prompts, n * self.n, params, seed=seed, version=version)
        scores = self.reward.score(drawn)
        if len(scores) != len(drawn):
            raise RewardError(f"got {len(scores)} scores for {len(drawn)} rollouts; expected one each")
        starts = range(0, len(drawn), self.n)
        return [_best(drawn[at : at + self.n], scores[at : at + self.n]) for at in starts]


def _best(drawn: Sequence[Rollout], scores: Sequence[Score]) -> Rollout:
    scored = [place for place, score in enumerate(scores) if score.ok and math.isfinite(score.total)]
    unscored = len(drawn) - len(scored)
    if not scored:
        why = f"none of {len(drawn)} draws could be scored; the first: {scores[0].error or scores[0].total}"
        return replace(drawn[0], info={**drawn[0].info, "error": why, "best_of": {"unscored": unscored}})
    place = max(scored, key=lambda at: scores[at].total)  # the first of several equal ones
    found = {"score": scores[place].total, "place": place, "unscored": unscored}
    return replace(drawn[place], info={**drawn[place].info, "best_of": found})
