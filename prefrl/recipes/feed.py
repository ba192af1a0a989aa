"""Where the prompts of each step come from: shuffled passes over those that the curriculum has in play."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from prefrl.config import CurriculumConfig
from prefrl.errors import DataError, RunError
from prefrl.policy.gather import Scorer
from prefrl.recipes.curriculum import (
    BUCKETS,
    Everything,
    Retiring,
    Staged,
    Visits,
    bucket,
    difficulties,
    success_rates,
)
from prefrl.types import Prompt, Rollout, Score


class Feed:
    """Prompts, step by step; what comes next depends on the seed and on what was recorded, and on nothing else.

    Args:
        prompts: the training prompts.
        size: prompts of a step, and the least that a stage of a curriculum holds.
        seed: of the order.
        config: which prompts are in play.

    Raises:
        DataError: no prompts, or a prompt without its difficulty.
    """

    def __init__(self, prompts: Sequence[Prompt], size: int, seed: int, config: CurriculumConfig) -> None:
        if not prompts:
            raise DataError("There are no training prompts; expected one at least. Give another --data.train.")
        self.prompts, self.config = list(prompts), config
        self.difficulty = difficulties(self.prompts, config.difficulty)
        self.visits = Visits(config.window)
        self._plan = self._planned(size)
        self._rng = random.Random(seed)
        self._queue: list[int] = []  # positions of the prompts to come
        self._had: set[str] = set()  # ids that this step has had
        self._figures: dict[str, float] = {}

    def take(self, n: int) -> list[Prompt]:
        """The next `n` prompts. Taken in the middle of a step, those that the step has had come last."""
        while len(self._queue) < n:
            self._queue += self._pass()
        if self._had and any(self.prompts[i].id not in self._had for i in self._plan.present()):
            self._bring_forward(n)
        taken, self._queue = self._queue[:n], self._queue[n:]
        self._had |= {self.prompts[i].id for i in taken}
        return [self.prompts[i] for i in taken]

    def record(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> None:
        """Note how the prompts of a step went. What is taken next belongs to another step."""
        rates = success_rates(rollouts, scores, self.config.success)
        self._figures = self._described(rates)
        for name, rate in rates.items():
            if rate is not None:
                self.visits.add(name, rate)
        before = set(self._plan.present())
        self._plan.learn(rates.keys())
        self._admit(before, self._plan.present())
        self._had = set()

    def metrics(self) -> dict[str, float]:
        """How many prompts are in play, and where the visits of the last step went.

        `feed/visits/...` are shares of its prompts by their success rate until then: `new`, `none` (0), `low` (below
        1/2), `high`, `all` (1). `feed/difficulty` is their mean in the column or, without one, their rate of failure.
        """
        return {"feed/active": float(len(self._plan.present())), **self._plan.metrics(), **self._figures}

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides what comes next, as JSON has it."""
        return {
            "prompts": self._fingerprint(),
            "rng": self._rng.getstate(),
            "queue": list(self._queue),
            "had": sorted(self._had),
            "rates": list(self.visits.rates.items()),
            "plan": self._plan.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same prompts and curriculum.

        Raises:
            RunError: the state is that of others.
        """
        if state["prompts"] != self._fingerprint():
            raise RunError(
                "The saved order of prompts is that of other training prompts, or of another curriculum.kind. "
                "Go on with the data and the curriculum that the run began with, or start a new run."
            )
        version, numbers, gauss = state["rng"]
        self._rng.setstate((version, tuple(numbers), gauss))
        self._queue, self._had = list(state["queue"]), set(state["had"])
        self.visits.rates = {name: list(rates) for name, rates in state["rates"]}
        self._plan.load_state(state["plan"])

    def _planned(self, size: int) -> Everything:
        names = [p.id for p in self.prompts]
        if self.config.kind == "retire":
            return Retiring(names, self.visits, self.config)
        if self.config.kind == "staged":
            return Staged(names, self.visits, self.config, size, self.difficulty)
        return Everything(names, self.visits, self.config)

    def _pass(self) -> list[int]:
        members = [*self._plan.present(), *self._plan.revisits()]
        return self._rng.sample(members, len(members))

    def _bring_forward(self, n: int) -> None:
        """Put `n` prompts that this step has not had at the front of the queue, as far as there are."""
        if len(self._fresh()) < n:
            self._queue += self._pass()
        places = self._fresh()[:n]
        rest = sorted(set(range(len(self._queue))) - set(places))
        self._queue = [self._queue[place] for place in (*places, *rest)]

    def _fresh(self) -> list[int]:
        """Places in the queue of prompts that this step has not had, one of each."""
        first: dict[str, int] = {}
        for place, i in enumerate(self._queue):
            first.setdefault(self.prompts[i].id, place)
        return [place for name, place in first.items() if name not in self._had]

    def _admit(self, before: set[int], present: Sequence[int]) -> None:
        """Take those that left out of the pass, and shuffle those that came into what is left of it."""
        left, joined = before.difference(present), [i for i in present if i not in before]
        self._queue = [i for i in self._queue if i not in left]
        if joined and self._queue:  # once the pass is over, the next one brings them
            self._queue = self._rng.sample(self._queue + joined, len(self._queue) + len(joined))

    def _described(self, rates: Mapping[str, float | None]) -> dict[str, float]:
        figures = {f"feed/visits/{name}": 0.0 for name in BUCKETS}
        for name in rates:
            figures[f"feed/visits/{bucket(self.visits.rate(name))}"] += 1.0 / len(rates)
        if self.difficulty:
            hard = [self.difficulty[name] for name in rates]
        else:
            hard = [1.0 - rate for rate in rates.values() if rate is not None]
        return figures | {"feed/difficulty": fmean(hard) if hard else math.nan}

    def _fingerprint(self) -> str:
        said = "\n".join([self.config.kind, *(p.id for p in self.prompts)])
        return hashlib.sha256(said.encode("utf-8", "backslashreplace")).hexdigest()


@dataclass
class Watched:
    """A reward of which a feed hears every score, also of the groups that dynamic sampling throws away."""

    reward: Scorer
    feed: Feed
    _seen: list[tuple[Rollout, Score]] = field(default_factory=list)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """The scores of the reward."""
        scores = self.reward.score(rollouts)
        self._seen += zip(rollouts, scores, strict=True)
        return scores

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Mapping[str, float]:
        """The step is over: the feed hears of all that was scored, the reward of what was learnt from."""
        self.feed.record([r for r, _ in self._seen], [s for _, s in self._seen])
        self._seen = []
        return self.reward.update(rollouts, scores)
