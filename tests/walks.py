"""Episodes made of given numbers, and an engine that says what it is told, for tests of learnt rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from prefrl.types import Prompt, Rollout, Row, StopReason


def walk(
    states: Sequence[Sequence[float]],
    actions: Sequence[int] | Sequence[Sequence[float]],
    *,
    logps: Sequence[float] | None = None,
    stop: StopReason = StopReason.LENGTH,
    name: str = "walk",
    version: int = 0,
    mask: tuple[bool, ...] | None = None,
) -> Rollout:
    """An episode through n + 1 states by n actions, whole numbers or lists of numbers."""
    n = len(actions)
    whole = all(isinstance(action, int) for action in actions)
    return Rollout(
        prompt=Prompt(id=name, text=name),
        completion_ids=tuple(actions) if whole else (0,) * n,
        mask=mask or (True,) * n,
        logps=tuple(logps) if logps is not None else (0.0,) * n,
        text="",
        stop=stop,
        group=name,
        version=version,
        observations=torch.tensor(states, dtype=torch.float32),
        actions=None if whole else torch.tensor(actions, dtype=torch.float32),
    )


class Told:
    """Stands in for an engine: log-probs are what two functions say of a row.

    Args:
        policy, reference: log-probs (n,) of a row.
    """

    def __init__(
        self, policy: Callable[[Row], Tensor], reference: Callable[[Row], Tensor] | None = None, version: int = 0
    ) -> None:
        self.version = version
        self._said = {"policy": policy, "reference": reference}
        self.asked: list[str] = []

    def logps(self, rows: Sequence[Row], who: str = "policy") -> list[Tensor]:
        """As told."""
        self.asked.append(who)
        said: Any = self._said[who]
        return [said(row) for row in rows]


def constant(value: float) -> Callable[[Row], Tensor]:
    """The same log-prob for every action."""
    return lambda row: torch.full((len(row.mask),), value)
