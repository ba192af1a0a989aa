"""Episodes of control policies made of numbers, for tests of what is learnt from fragments of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from prefrl.types import Prompt, Rollout, StopReason


def episode(rewards: Sequence[float], name: str = "e", *, stop: StopReason = StopReason.LENGTH) -> Rollout:
    """An episode whose observation (2,) before step t is (number of the episode's letters, t); all actions are 0."""
    n = len(rewards)
    observations = torch.tensor([[float(sum(map(ord, name))), float(t)] for t in range(n + 1)])
    return Rollout(
        prompt=Prompt(id="env", text="env"),
        completion_ids=(0,) * n,
        mask=(True,) * n,
        logps=(0.0,) * n,
        text="",
        stop=stop,
        group=name,
        observations=observations,
        info={"rewards": tuple(rewards), "return": sum(rewards)},
    )


def driven(values: Sequence[float], name: str = "d") -> Rollout:
    """An episode whose reward at a step is minus the square of the one number that is seen there."""
    n = len(values) - 1
    return Rollout(
        prompt=Prompt(id="env", text="env"),
        completion_ids=(0,) * n,
        mask=(True,) * n,
        logps=(0.0,) * n,
        text="",
        stop=StopReason.LENGTH,
        group=name,
        observations=torch.tensor(values)[:, None],
        info={"rewards": tuple(-(v**2) for v in values[:-1])},
    )
