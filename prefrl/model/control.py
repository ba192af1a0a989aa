"""A small control policy as an actor: a network with a categorical distribution over actions.

It answers the same calls as a language model: its rows carry observations in place of prompt tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from prefrl.config import SamplingConfig
from prefrl.errors import ModelError
from prefrl.model.checkpoint import atomic_folder
from prefrl.rollout.sampler import occurrences, row_uniforms
from prefrl.types import Extra, Prompt, Rollout, Row, StopReason

Mask = Callable[[Tensor], Tensor]


class Environment(Protocol):
    """One episode. It pays no reward: that is what reward sources are for."""

    def reset(self, prompt: Prompt) -> Tensor:
        """Start an episode; the first observation (d,)."""
        ...

    def step(self, action: int) -> tuple[Tensor, bool]:
        """Play an action; the next observation (d,) and whether the episode ended by itself."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """An environment that has more to say of an episode than what was seen in it."""

    def report(self) -> Mapping[str, Any]:
        """Asked for once, after the last action; it becomes `Rollout.info`."""
        ...


class ControlPolicy:
    """Categorical policy `softmax(net(observation))` over the allowed actions, and the environments it acts in.

    Args:
        observation_size: numbers in an observation.
        actions: number of actions.
        make: a fresh environment for every episode.
        hidden: units of the one hidden layer, when no `net` is given.
        net: any module from observations (N, d) to logits (N, actions), in place of that network.
        mask: which actions are allowed: observations (N, d) -> bool (N, actions). None allows all.
        zero_init: start the last linear layer at 0, so that all allowed actions are equally likely.
    """

    def __init__(
        self,
        observation_size: int,
        actions: int,
        make: Callable[[], Environment],
        *,
        hidden: int = 32,
        net: nn.Module | None = None,
        mask: Mask | None = None,
        zero_init: bool = False,
    ) -> None:
        self.observation_size = observation_size
        self.actions = actions
        self.net = net if net is not None else mlp(observation_size, actions, hidden)
        self.make = make
        self.mask = mask
        if zero_init:
            zero(last_linear(self.net))

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.net

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return False

    @property
    def state_size(self) -> int:
        """Numbers that `states` has of an observation."""
        return last_linear(self.net).in_features

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """Log-probs of all masked-in actions, laid end to end (N,), with gradient."""
        return self.token_statistics(rows, temperature)["logps"]

    def token_statistics(
        self,
        rows: Sequence[Row],
        temperature: float = 1.0,
        extras: Collection[Extra] = (),
        teacher: object | None = None,
    ) -> dict[str, Tensor]:
        """What is asked for of all masked-in actions, laid end to end (N,), with gradient.

        Returns:
            `logps`, log-probs of the actions; of `extras`, `entropy` = -sum_a p log p, and
            `teacher_kl` = sum_a p (log p - log q) with q of a `teacher` that is a control policy too.

        Raises:
            ModelError: `teacher_kl` without such a teacher, or observations that do not fit.
        """
        observations = seen(rows)
        logps = self.distribution(observations, temperature)
        taken = torch.tensor([action for row in rows for action in row.completion_ids])
        actions = taken[torch.tensor([scored for row in rows for scored in row.mask])]
        statistics = {"logps": logps.gather(-1, actions.to(logps.device)[:, None]).squeeze(-1)}
        if "entropy" in extras:
            statistics["entropy"] = -_expected(logps, logps)
        if "teacher_kl" in extras:
            with torch.no_grad():
                other = _control(teacher).distribution(observations, temperature).to(logps.device)
            statistics["teacher_kl"] = _expected(logps, logps - other)
        return statistics

    def distribution(self, observations: Tensor, temperature: float = 1.0) -> Tensor:
        """Log-probs (N, actions) at observations (N, d), with gradient; -inf where an action is not allowed.

        Raises:
            ModelError: the mask has another shape, or allows no action at all.
        """
        return _log_softmax(self.net, self.mask, observations, temperature)

    @torch.no_grad()
    def states(self, observations: Tensor) -> Tensor:
        """What enters the last linear layer (N, state_size) at observations (N, d), without gradient."""
        caught: list[Tensor] = []
        hook = last_linear(self.net).register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
        try:
            self.net(_fitting(observations, self.net))
        finally:
            hook.remove()
        return caught[-1]

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Play `n` episodes of at most `params.max_new_tokens` actions from every prompt.

        All episodes go on together, one action at a time. The network is computed in float64, so that what an
        episode is batched with does not reach its float32 log-probs.
        """
        net = copy.deepcopy(self.net).to("cpu", torch.float64)
        episodes = [
            _Episode(prompt, f"{prompt.id}#{occurrence}", self.make(), uniforms)
            for prompt, occurrence in zip(prompts, occurrences(prompts), strict=True)
            for uniforms in (row_uniforms(seed, prompt, occurrence, k, params.max_new_tokens) for k in range(n))
        ]
        for step in range(params.max_new_tokens):
            live = [episode for episode in episodes if not episode.ended]
            if not live:
                break
            now = torch.stack([episode.observations[-1] for episode in live])
            logps = _log_softmax(net, self.mask, now, params.temperature or 1.0)
            uniforms = torch.stack([episode.uniforms[step] for episode in live])
            actions = _draw(logps, uniforms) if params.temperature else logps.argmax(-1)
            chosen = logps.gather(-1, actions[:, None]).squeeze(-1).float()
            for episode, action, logp in zip(live, actions.tolist(), chosen.tolist(), strict=True):
                episode.play(action, logp)
        return [episode.rollout(version) for episode in episodes]

    def save(self, folder: str | Path) -> None:
        """Write the network's weights as safetensors, all or nothing."""
        with atomic_folder(folder) as scratch:
            save_file(self.net.state_dict(), scratch / "model.safetensors")


@dataclass(slots=True)
class _Episode:
    prompt: Prompt
    group: str
    environment: Environment
    uniforms: Tensor
    ended: bool = False
    observations: list[Tensor] = field(init=False)
    actions: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.observations = [self.environment.reset(self.prompt)]

    def play(self, action: int, logp: float) -> None:
        observation, self.ended = self.environment.step(action)
        self.observations.append(observation)
        self.actions.append(action)
        self.logps.append(logp)

    def rollout(self, version: int) -> Rollout:
        return Rollout(
            prompt=self.prompt,
            completion_ids=tuple(self.actions),
            mask=(True,) * len(self.actions),
            logps=tuple(self.logps),
            text=" ".join(map(str, self.actions)),
            stop=StopReason.ENVIRONMENT if self.ended else StopReason.LENGTH,
            group=self.group,
            version=version,
            observations=torch.stack(self.observations),
            info=dict(self.environment.report()) if isinstance(self.environment, Reporting) else {},
        )


def seen(rows: Sequence[Row]) -> Tensor:
    """The observation before every masked-in action, laid end to end (N, d).

    Raises:
        ModelError: a row has fewer observations than actions.
    """
    parts = []
    for row in rows:
        n, got = len(row.completion_ids), 0 if row.observations is None else len(row.observations)
        if row.observations is None or got < n:
            raise ModelError(
                f"A row has {got} observations for {n} actions; expected one before every action, and optionally one "
                "after the last. Fill Row.observations from Rollout.observations."
            )
        parts.append(row.observations[:n][torch.tensor(row.mask, device=row.observations.device)])
    return torch.cat(parts)


def mlp(inputs: int, outputs: int, hidden: int) -> nn.Sequential:
    """One hidden layer of tanh units."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def last_linear(net: nn.Module) -> nn.Linear:
    """The linear layer that was registered last: the one that gives the logits.

    Raises:
        ModelError: there is none.
    """
    linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelError(
            f"{type(net).__name__} has no linear layer; expected one as the last, for zero_init and for a critic on "
            "its hidden layer. End the network with nn.Linear, or use neither."
        )
    return linear[-1]


def zero(layer: nn.Linear) -> nn.Linear:
    """Set weights and bias of a layer to 0."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _log_softmax(net: nn.Module, mask: Mask | None, observations: Tensor, temperature: float) -> Tensor:
    logits = net(_fitting(observations, net)) / temperature
    if mask is None:
        return logits.log_softmax(-1)
    allowed = mask(observations)
    if allowed.shape != logits.shape or not bool(allowed.any(-1).all()):
        none = int((~allowed.any(-1)).sum())
        raise ModelError(
            f"The action mask is {tuple(allowed.shape)} for logits {tuple(logits.shape)} and allows nothing at {none} "
            "observations; expected the same shape and an action allowed everywhere. End the episode where none is."
        )
    return logits.masked_fill(~allowed.to(logits.device), -torch.inf).log_softmax(-1)


def _draw(logps: Tensor, uniforms: Tensor) -> Tensor:
    """Invert the cumulative distribution (B, actions) at uniforms (B,): never an action of probability 0.

    In float64 the largest uniform, 1 - 2**-53, times the total is below the total, however it rounds.
    """
    cumulative = logps.exp().cumsum(-1)
    return torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True).squeeze(-1)


def _expected(logps: Tensor, values: Tensor) -> Tensor:
    """Sum over actions of p * value; an action that is not allowed counts 0 in value and in gradient."""
    return (logps.exp() * values.masked_fill(logps == -torch.inf, 0.0)).sum(-1)


def _control(teacher: object) -> ControlPolicy:
    if not isinstance(teacher, ControlPolicy):
        raise ModelError(
            f"The teacher of a control policy is {type(teacher).__name__}; expected a ControlPolicy with the same "
            "actions. Pass one as teacher, or do not ask for teacher_kl."
        )
    return teacher


def _fitting(observations: Tensor, net: nn.Module) -> Tensor:
    """Observations on the network's device and, unless they are whole numbers, of its dtype."""
    parameter = next(net.parameters())
    return observations.to(parameter.device, parameter.dtype if observations.is_floating_point() else None)
