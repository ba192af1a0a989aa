"""A small control policy as an actor: an MLP with a categorical distribution over actions.

It answers the same calls as a language model: its rows carry observations in place of prompt tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from prefrl.config import SamplingConfig
from prefrl.model.checkpoint import atomic_folder
from prefrl.rollout.sampler import occurrences, row_uniforms
from prefrl.types import Prompt, Rollout, Row, StopReason


class Environment(Protocol):
    """One episode. It pays no reward: that is what reward sources are for."""

    def reset(self, prompt: Prompt) -> Tensor:
        """Start an episode; the first observation (d,)."""
        ...

    def step(self, action: int) -> tuple[Tensor, bool]:
        """Play an action; the next observation (d,) and whether the episode ended by itself."""
        ...


class ControlPolicy:
    """Categorical policy `softmax(MLP(observation))` and the environments it acts in."""

    def __init__(
        self, observation_size: int, actions: int, make: Callable[[], Environment], *, hidden: int = 32
    ) -> None:
        self.net = nn.Sequential(nn.Linear(observation_size, hidden), nn.Tanh(), nn.Linear(hidden, actions))
        self.make = make

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.net

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return False

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """Log-probs of all masked-in actions, laid end to end (N,), with gradient."""
        observations = torch.cat([row.observations for row in rows if row.observations is not None])
        actions = torch.tensor([a for row in rows for a in row.completion_ids])
        logps = (self.net(observations) / temperature).log_softmax(-1).gather(-1, actions[:, None]).squeeze(-1)
        mask = torch.tensor([m for row in rows for m in row.mask])
        selected: Tensor = logps[mask]
        return selected

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Play `n` episodes of at most `params.max_new_tokens` actions from every prompt."""
        return [
            self._episode(prompt, f"{prompt.id}#{occurrence}", uniforms, params.temperature or 1.0, version)
            for prompt, occurrence in zip(prompts, occurrences(prompts), strict=True)
            for uniforms in (row_uniforms(seed, prompt, occurrence, k, params.max_new_tokens) for k in range(n))
        ]

    def _episode(self, prompt: Prompt, group: str, uniforms: Tensor, temperature: float, version: int) -> Rollout:
        environment = self.make()
        observation, stop = environment.reset(prompt), StopReason.LENGTH
        observations, actions, logps = [], [], []
        for uniform in uniforms:
            distribution = (self.net(observation) / temperature).log_softmax(-1)
            cumulative = distribution.exp().double().cumsum(-1)
            action = int(
                torch.searchsorted(cumulative, uniform * cumulative[-1], right=True).clamp(max=len(cumulative) - 1)
            )
            observations.append(observation)
            actions.append(action)
            logps.append(float(distribution[action]))
            observation, ended = environment.step(action)
            if ended:
                stop = StopReason.ENVIRONMENT
                break
        return Rollout(
            prompt=prompt,
            completion_ids=tuple(actions),
            mask=(True,) * len(actions),
            logps=tuple(logps),
            text=" ".join(map(str, actions)),
            stop=stop,
            group=group,
            version=version,
            observations=torch.stack(observations),
        )

    def save(self, folder: str | Path) -> None:
        """Write the network's weights as safetensors, all or nothing."""
        with atomic_folder(folder) as scratch:
            save_file(self.net.state_dict(), scratch / "model.safetensors")
