"""A reward to maximise while the mean of a cost stays below a limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.base import Reward, as_source, unique_names, verified_scores
from prefrl.rewards.compose import Term, named_parts
from prefrl.types import Rollout, Score


class Constraint(Reward):
    """Maximise `main` subject to E[cost] <= limit, by its Lagrangian (Altman, Constrained Markov Decision Processes).

        reward = main - lambda (cost - limit)
        lambda <- min(maximum, max(0, lambda + rate (mean cost - limit)))

    The multiplier rises for as long as the limit is broken and falls back to 0 once it is kept with room to spare. It
    moves once in `update`, by the costs of the rollouts learnt from; evaluations do not move it. Parts: both totals
    under their names, and `lambda`. An error of either source fails the rollout.

    Args:
        main: what to maximise.
        cost: what to limit; higher is worse.
        limit: largest mean cost allowed.
        rate: how far the multiplier moves per unit of violation.
        start: the first multiplier.
        maximum: the largest multiplier.
    """

    def __init__(
        self,
        main: Any,
        cost: Any,
        limit: float,
        *,
        rate: float = 0.1,
        start: float = 0.0,
        maximum: float = 100.0,
    ) -> None:
        if not math.isfinite(limit):
            raise ConfigError(f"constraint: limit={limit}; expected a finite number")
        if not (rate > 0 and 0 <= start <= maximum < math.inf):
            raise ConfigError(
                f"constraint: rate={rate}, start={start}, maximum={maximum}; expected a positive rate and "
                "0 <= start <= maximum"
            )
        self.main, self.cost = as_source(main), as_source(cost)
        self.limit, self.rate, self.start, self.maximum = limit, rate, start, maximum
        self.multiplier = start
        self.children = (self.main, self.cost)
        self.name = f"{self.main.name} s.t. {self.cost.name} <= {limit:g}"
        # Costs of what was scored since the last update; holding the rollouts keeps their identities unique.
        self._seen: dict[int, tuple[Rollout, Score]] = {}

    @property
    def terms(self) -> list[Term]:
        """The sources and their weights, as a weighted sum has them."""
        return [(self.main, 1.0), (self.cost, -self.multiplier)]

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        main, costs = (verified_scores(child, rollouts) for child in self.children)
        self._seen.update((id(r), (r, cost)) for r, cost in zip(rollouts, costs, strict=True))
        return [self._penalised(score, cost) for score, cost in zip(main, costs, strict=True)]

    def _penalised(self, score: Score, cost: Score) -> Score:
        names = unique_names(self.children)
        for name, found in zip(names, (score, cost), strict=True):
            if not found.ok:
                return Score.failed(f"component {name!r}: {found.error}")
        steps = dict(score.steps)
        for index, price in cost.steps:
            steps[index] = steps.get(index, 0.0) - self.multiplier * price
        return Score(
            value=(score.value or 0.0) - self.multiplier * ((cost.value or 0.0) - self.limit),
            steps=tuple(sorted(steps.items())),
            parts={**named_parts(names[0], score), **named_parts(names[1], cost), "lambda": self.multiplier},
        )

    def update(
        self, rollouts: Sequence[Rollout], scores: Sequence[Score] | None = None, demonstrations: Any = None
    ) -> dict[str, float]:
        """One step of dual ascent, then the updates of the sources; `lambda` and the mean `cost` are metrics."""
        found = self._costs(rollouts)
        self._seen.clear()
        own = {"lambda": self.multiplier}
        if found:
            own["cost"] = fmean(found)
            moved = self.multiplier + self.rate * (own["cost"] - self.limit)
            own["lambda"] = self.multiplier = min(max(moved, 0.0), self.maximum)
        return {**own, **super().update(rollouts, scores, demonstrations)}

    def _costs(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Costs of the rollouts that could be judged; those that were not scored here are judged now."""
        unseen = [rollout for rollout in rollouts if id(rollout) not in self._seen]
        fresh = iter(verified_scores(self.cost, unseen) if unseen else [])
        scores = [self._seen[id(r)][1] if id(r) in self._seen else next(fresh) for r in rollouts]
        return [score.total for score in scores if score.ok]

    def state_dict(self) -> dict[str, Any]:
        """The multiplier, and the state of the sources."""
        return {"lambda": self.multiplier, "children": super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "lambda" not in state:
            raise RewardError(f"the saved state of reward {self.name!r} holds no lambda; got {sorted(state)}")
        self.multiplier = float(state["lambda"])
        super().load_state_dict(state["children"])
