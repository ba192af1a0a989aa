"""Two small worlds in which what is seen does not say where one is, with their exact figures.

A/B/C aliasing: three places in a row, A - B - C. A and C look alike, the goal is B, an episode starts in A or in C, and
whoever walks against a wall stays. With discount .9 the best deterministic policy without a memory is worth .5 and the
best random one, which goes right with probability 1/2, .9091; one that remembers what it has tried is worth .95.

Locked door: for a whole episode a door is locked, with probability 1/2. A model without a memory, which has seen every
second push succeed, says that one of H pushes will with probability 1 - 2^-H; the truth is 1/2 for every H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from prefrl.errors import DataError
from prefrl.types import Prompt, Rollout

LEFT, RIGHT = 0, 1
DISCOUNT = 0.9


class Aliased:
    """A/B/C: the prompt's column `start` is A or C. The observation (1,) is always 1: A and C look alike."""

    observation_size, actions = 1, 2

    def reset(self, prompt: Prompt) -> Tensor:
        """Go to the start."""
        start = prompt.columns.get("start")
        if start not in ("A", "C"):
            raise DataError(f"Prompt {prompt.id!r} starts at {start!r}; expected a column 'start' with A or C.")
        self.place, self.rewards = (0 if start == "A" else 2), list[float]()
        return torch.ones(1)

    def step(self, action: int) -> tuple[Tensor, bool]:
        """Walk: 0 left, 1 right. Only B, which ends the episode, is paid: 1."""
        self.place = min(2, max(0, self.place + (1 if action == RIGHT else -1)))
        self.rewards.append(float(self.place == 1))
        return torch.ones(1), self.place == 1

    def report(self) -> Mapping[str, Any]:
        """`rewards` of every step and `return`, their sum."""
        return {"rewards": list(self.rewards), "return": sum(self.rewards)}


class LockedDoor:
    """A door: the prompt's column `locked` says whether it opens. The observation (1,) is 1 where it is open."""

    observation_size, actions = 1, 1

    def reset(self, prompt: Prompt) -> Tensor:
        """Stand before the door, which looks the same locked or not."""
        locked = prompt.columns.get("locked")
        if not isinstance(locked, bool):
            raise DataError(f"Prompt {prompt.id!r} has locked={locked!r}; expected a column 'locked', true or false.")
        self.locked, self.rewards = locked, list[float]()
        return torch.zeros(1)

    def step(self, action: int) -> tuple[Tensor, bool]:
        """Push: it opens at once, or never."""
        self.rewards.append(float(not self.locked))
        return torch.tensor([float(not self.locked)]), not self.locked

    def report(self) -> Mapping[str, Any]:
        """`rewards` of every step and `return`, their sum."""
        return {"rewards": list(self.rewards), "return": sum(self.rewards)}


def aliased_prompts() -> list[Prompt]:
    """Both starts of A/B/C, equally often."""
    return [Prompt(id=start, text="", columns={"start": start}) for start in ("A", "C")]


def door_prompts(pairs: int = 1) -> list[Prompt]:
    """Locked and unlocked doors, equally often."""
    return [
        Prompt(id=f"{'locked' if locked else 'open'} {i}", text="", columns={"locked": locked})
        for i in range(pairs)
        for locked in (True, False)
    ]


def aliased_value(right: float, gamma: float = DISCOUNT) -> float:
    """Value of going right with a probability, whatever was tried: the mean of p / (1 - gamma (1 - p)) over starts."""
    return sum(p / (1.0 - gamma * (1.0 - p)) for p in (right, 1.0 - right)) / 2.0


def aliased_history_value(gamma: float = DISCOUNT) -> float:
    """Value of trying one side, and after a wall the other: (1 + gamma) / 2."""
    return (1.0 + gamma) / 2.0


def discounted_return(rollouts: Sequence[Rollout], gamma: float = DISCOUNT) -> float:
    """Mean over episodes of `sum_t gamma^t r_t`, of the rewards that the environment reported."""
    sums = [sum(gamma**t * r for t, r in enumerate(rollout.info["rewards"])) for rollout in rollouts]
    return sum(sums) / len(sums)


def memoryless_prediction(rollouts: Sequence[Rollout], horizon: int) -> float:
    """Chance that one of `horizon` pushes opens the door, says a model that knows how often a first push did.

    1 - (1 - q)^H, with q the share of first pushes that were paid: each push is taken to be another throw of the coin.
    """
    first = [float(rollout.info["rewards"][0]) for rollout in rollouts]
    return 1.0 - (1.0 - sum(first) / len(first)) ** horizon


def share_opened(rollouts: Sequence[Rollout]) -> float:
    """Share of doors that were opened, however often they were pushed."""
    return sum(rollout.terminated for rollout in rollouts) / len(rollouts)
