"""Environments of control policies: one episode at a time, or many at once.

Time limits and ends are different things: `terminated` says that the episode ended by itself, `truncated` that it was
cut off while more reward was to come. No environment here starts a new episode on its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from prefrl.rollout.sampler import occurrences, row_uniforms
from prefrl.types import Prompt


class Environment(Protocol):
    """One episode. It pays no reward: that is what reward sources are for."""

    def reset(self, prompt: Prompt) -> Tensor:
        """Start an episode; the first observation (d,)."""
        ...

    def step(self, action: Any) -> tuple[Tensor, bool]:
        """Play an action, a whole number or a tensor (k,); the next observation (d,) and whether the episode ended."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """An environment that has more to say of an episode than what was seen in it."""

    def report(self) -> Mapping[str, Any]:
        """Asked for once, after the last action; it becomes `Rollout.info`."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What an episode begins with.

    seed      of its environment: the prompt's column `seed`, the same for all its episodes, or one of its own
    uniforms  (T, draws) numbers that its actions are drawn with
    """

    prompt: Prompt
    group: str
    seed: int
    uniforms: Tensor


class Moved(NamedTuple):
    """What followed an action in L episodes: observations (L, d), and (L,) each of bool."""

    observations: Tensor
    terminated: Tensor
    truncated: Tensor


class Environments(Protocol):
    """Many episodes that go on together.

    exact  an episode's numbers do not depend on the others, and a policy must not make them so
    """

    exact: bool

    def reset(self, plans: Sequence[Plan]) -> Tensor:
        """Start an episode for each plan; first observations (N, d)."""
        ...

    def step(self, live: Tensor, actions: Tensor) -> Moved:
        """Play actions (L,) or (L, k) in the episodes `live` (L,), which are places among the plans, ascending."""
        ...

    def reports(self) -> list[dict[str, Any]]:
        """`Rollout.info` of every episode, asked for once at the end."""
        ...


class Singles:
    """Environments of one episode each, stepped one after the other."""

    exact = True

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._environments: list[Environment] = []

    def reset(self, plans: Sequence[Plan]) -> Tensor:
        """See `Environments`."""
        self._environments = [self._make() for _ in plans]
        return torch.stack([e.reset(plan.prompt) for e, plan in zip(self._environments, plans, strict=True)])

    def step(self, live: Tensor, actions: Tensor) -> Moved:
        """See `Environments`."""
        played = actions.tolist() if actions.ndim == 1 else actions
        moved = [self._environments[i].step(action) for i, action in zip(live.tolist(), played, strict=True)]
        ended = torch.tensor([end for _, end in moved])
        return Moved(torch.stack([seen for seen, _ in moved]), ended, torch.zeros_like(ended))

    def reports(self) -> list[dict[str, Any]]:
        """See `Environments`."""
        return [dict(e.report()) if isinstance(e, Reporting) else {} for e in self._environments]


def plan_episodes(prompts: Sequence[Prompt], n: int, seed: int, steps: int, draws: int) -> list[Plan]:
    """`n` episodes of every prompt; a prompt that comes again makes a group of its own."""
    return [
        Plan(
            prompt,
            f"{prompt.id}#{occurrence}",
            int(prompt.columns.get("seed", _environment_seed(seed, prompt, occurrence, k))),
            row_uniforms(seed, prompt, occurrence, k, steps * draws).view(steps, draws),
        )
        for prompt, occurrence in zip(prompts, occurrences(prompts), strict=True)
        for k in range(n)
    ]


def _environment_seed(seed: int, prompt: Prompt, occurrence: int, sample: int) -> int:
    key = f"environment|{seed}|{prompt.id}|{occurrence}|{sample}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1
