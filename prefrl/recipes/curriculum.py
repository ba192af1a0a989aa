"""Which prompts are in play: all of them, those not solved yet, or the easier ones first.

A visit is a prompt in a step; its success rate is the share of its scored completions with a reward of at least
`success`. What could not be scored counts neither way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from prefrl.config import CurriculumConfig
from prefrl.errors import DataError
from prefrl.policy.advantages import reaches
from prefrl.types import Prompt, Rollout, Score

BUCKETS = ("new", "none", "low", "high", "all")


def bucket(rate: float | None) -> str:
    """The name of a success rate in metrics: not known, 0, below a half, a half or more, 1."""
    if rate is None:
        return "new"
    if rate in (0.0, 1.0):
        return "all" if rate else "none"
    return "low" if rate < 0.5 else "high"


def success_rates(rollouts: Sequence[Rollout], scores: Sequence[Score], success: float) -> dict[str, float | None]:
    """Share of successes among the scored completions of every prompt, by its id; None where none was scored."""
    found: dict[str, list[bool]] = {}
    for rollout, score in zip(rollouts, scores, strict=True):
        mine = found.setdefault(rollout.prompt.id, [])
        if score.ok:
            mine.append(reaches(score.total, success))
    return {name: fmean(mine) if mine else None for name, mine in found.items()}


def difficulties(prompts: Sequence[Prompt], column: str) -> dict[str, float]:
    """The column's number of every prompt, by its id; empty without a column.

    Raises:
        DataError: a prompt without a finite number.
    """
    if not column:
        return {}
    for prompt in prompts:
        value = prompt.columns.get(column)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(
                f"Prompt {prompt.id!r} has {value!r} in the column {column!r}; expected a number for its difficulty. "
                "Fill the column, or leave curriculum.difficulty empty to have success measured."
            )
    return {prompt.id: float(prompt.columns[column]) for prompt in prompts}


@dataclass
class Visits:
    """Success rates of the last `window` visits of every prompt, by its id; who was visited last comes last."""

    window: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, rate: float) -> None:
        """Note one more visit."""
        self.rates[name] = [*self.rates.pop(name, []), rate][-self.window :]

    def rate(self, name: str) -> float | None:
        """Mean success rate; None before the first visit."""
        return fmean(self.rates[name]) if name in self.rates else None


@dataclass
class Everything:
    """All prompts, always.

    Args:
        names: ids of the prompts; everything else here speaks of their positions.
        visits: how the prompts went so far.
        config: shares, rates and stages.
    """

    names: list[str]
    visits: Visits
    config: CurriculumConfig

    def present(self) -> list[int]:
        """The prompts that a pass holds."""
        return list(range(len(self.names)))

    def revisits(self) -> list[int]:
        """Further prompts for the pass that begins now."""
        return []

    def learn(self, visited: AbstractSet[str]) -> None:
        """Decide anew, now that these prompts were visited."""

    def metrics(self) -> dict[str, float]:
        """Figures of its own."""
        return {}

    def state(self) -> dict[str, Any]:
        """What it remembers, as JSON has it."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""


@dataclass
class Retiring(Everything):
    """Prompts solved over `window` visits leave; `revisit` is their share of visits, and those that fail return.

    When all are solved, passes hold all of them.
    """

    retired: set[str] = field(default_factory=set)
    returned: int = 0
    owed: float = 0.0  # revisits due by the share but not yet a whole one

    def present(self) -> list[int]:
        return self._active() or super().present()

    def revisits(self) -> list[int]:
        share = self.config.revisit
        self.owed += len(self._active()) * share / (1.0 - share)
        whole = int(self.owed)
        self.owed -= whole
        longest_ago = [name for name in self.visits.rates if name in self.retired]
        return [self.names.index(name) for name in longest_ago[:whole]]

    def learn(self, visited: AbstractSet[str]) -> None:
        solved = {name for name in visited if self._is_solved(name)}
        back = (visited & self.retired) - solved
        self.retired = (self.retired | solved) - back
        self.returned += len(back)

    def metrics(self) -> dict[str, float]:
        return {"feed/retired": float(len(self.retired)), "feed/returned": float(self.returned)}

    def state(self) -> dict[str, Any]:
        return {"retired": sorted(self.retired), "returned": self.returned, "owed": self.owed}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.retired, self.returned, self.owed = set(state["retired"]), state["returned"], state["owed"]

    def _active(self) -> list[int]:
        return [i for i, name in enumerate(self.names) if name not in self.retired]

    def _is_solved(self, name: str) -> bool:
        rates = self.visits.rates.get(name, [])
        return len(rates) == self.config.window and fmean(rates) >= self.config.retire_at


@dataclass
class Staged(Everything):
    """The easiest 1 / `stages` first; the next part is added once a pass is over and the success rate is high.

    Without a column of difficulties, stage 0 visits all prompts once and orders them by success rate.

    Args:
        size: prompts of a step, and the least that a stage holds.
        difficulty: a number for every id, or nothing.
    """

    size: int
    difficulty: Mapping[str, float]
    stage: int = field(init=False)
    order: list[int] = field(init=False)  # easiest first
    waiting: set[str] = field(init=False)  # not yet visited in this stage

    def __post_init__(self) -> None:
        known = self.difficulty
        self.order = sorted(super().present(), key=lambda i: known[self.names[i]]) if known else super().present()
        self._begin(1 if known else 0)

    def present(self) -> list[int]:
        share = self.stage / self.config.stages if self.stage else 1.0
        return self.order[: max(self.size, math.ceil(share * len(self.order)))]

    def learn(self, visited: AbstractSet[str]) -> None:
        self.waiting -= visited
        if self.waiting or self.stage >= self.config.stages:
            return
        if not self.stage:
            # What could never be scored is taken for the hardest.
            rates = [self.visits.rates.get(name, [-1.0]) for name in self.names]
            self.order = sorted(super().present(), key=lambda i: -fmean(rates[i]))
            self._begin(1)
        elif self._present_rate() >= self.config.advance_at:
            self._begin(self.stage + 1)

    def metrics(self) -> dict[str, float]:
        return {"feed/stage": float(self.stage)}

    def state(self) -> dict[str, Any]:
        return {"stage": self.stage, "order": self.order, "waiting": sorted(self.waiting)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.stage, self.order, self.waiting = state["stage"], list(state["order"]), set(state["waiting"])

    def _begin(self, stage: int) -> None:
        self.stage = stage
        self.waiting = {self.names[i] for i in self.present()}

    def _present_rate(self) -> float:
        rates = [self.visits.rate(self.names[i]) for i in self.present()]
        known = [rate for rate in rates if rate is not None]
        return fmean(known) if known else -math.inf
