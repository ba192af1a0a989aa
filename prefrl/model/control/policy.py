"""A control policy as an actor: a network, with a memory or without, and a distribution over actions.

It answers the same calls as a language model: its rows carry observations in place of prompt tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prefrl.config import SamplingConfig
from prefrl.errors import ModelError
from prefrl.model.control.playing import play
from prefrl.model.control.record import write_policy
from prefrl.model.distributions import Categorical, Distribution
from prefrl.model.networks import Normaliser, fitting, last_linear, mlp, zero
from prefrl.model.recurrent import Recurrent, done, seen, through
from prefrl.rollout.episodes import Environment, Environments, Singles
from prefrl.types import Extra, Prompt, Rollout, Row

Mask = Callable[[Tensor], Tensor]


class ControlPolicy:
    """A distribution over actions given by a network, and the environments it acts in.

    Args:
        observation_size: numbers in an observation.
        actions: number of actions, or the distribution over them.
        make: a fresh environment for every episode; or `environments`.
        hidden: units of the hidden layers, when no `net` is given.
        net: any module from observations (N, d) to the numbers that the distribution takes (N, size), or a
            `Recurrent`, in place of that network.
        mask: which actions are allowed: observations (N, d) -> bool (N, actions). None allows all.
        zero_init: start the last linear layer at 0, so that all allowed actions are equally likely.
        environments: many episodes at once, in place of `make`.
        value_net: makes a network from observations to values (N, 1), for a critic of its own; None makes one like
            the policy's default network.
        record: what `save` writes beside the weights.
    """

    def __init__(
        self,
        observation_size: int,
        actions: int | Distribution,
        make: Callable[[], Environment] | None = None,
        *,
        hidden: int | Sequence[int] = 32,
        net: nn.Module | None = None,
        mask: Mask | None = None,
        zero_init: bool = False,
        environments: Environments | None = None,
        value_net: Callable[[], nn.Module] | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        self.observation_size = observation_size
        self.distribution_of: Distribution = Categorical(actions) if isinstance(actions, int) else actions
        self.actions = self.distribution_of.width
        self.net = net if net is not None else mlp(observation_size, self.distribution_of.size, hidden)
        self.environments = environments or (Singles(make) if make is not None else None)
        self.mask = mask
        self.record = dict(record or {})
        self._value_net = value_net or (lambda: mlp(observation_size, 1, hidden))
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
    def recurrent(self) -> bool:
        """Whether what it does depends on more than the last observation."""
        return isinstance(self.net, Recurrent)

    @property
    def state_size(self) -> int:
        """Numbers that `states` has of an observation."""
        return last_linear(self.net).in_features

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """Log-probs (log-densities) of all masked-in actions, laid end to end (N,), with gradient."""
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
            `logps`, log-probs of the actions, or log-densities; of `extras`, `entropy` = -E log p, and
            `teacher_kl` = KL(p || q) with q of a `teacher` that is a control policy too.

        Raises:
            ModelError: `teacher_kl` without such a teacher, or observations that do not fit.
        """
        outputs, over = self.outputs(rows), self.distribution_of
        statistics = {"logps": over.log_prob(outputs, done(rows), temperature)}
        if "entropy" in extras:
            statistics["entropy"] = over.entropy(outputs, temperature)
        if "teacher_kl" in extras:
            with torch.no_grad():
                other = _control(teacher).outputs(rows)
            statistics["teacher_kl"] = over.kl(outputs, other, temperature)
        return statistics

    def outputs(self, rows: Sequence[Row]) -> Tensor:
        """What the distribution takes, before every masked-in action, laid end to end (N, size), with gradient."""
        outputs = through(self.net, rows, self.distribution_of.encode)
        return outputs if self.mask is None else allowed(outputs, self.mask(seen(rows)))

    def distribution(self, observations: Tensor, temperature: float = 1.0) -> Tensor:
        """Log-probs (N, actions) at observations (N, d), with gradient; -inf where an action is not allowed.

        Raises:
            ModelError: the mask has another shape, or allows no action at all; the policy has a memory, or its
                actions are continuous.
        """
        if self.recurrent or not isinstance(self.distribution_of, Categorical):
            raise ModelError(
                f"A {self.distribution_of.name} policy {'with' if self.recurrent else 'without'} a memory has no table "
                "of log-probs at single observations. Use token_statistics on rows."
            )
        logits = self.net(fitting(observations, self.net))
        logits = logits if self.mask is None else allowed(logits, self.mask(observations))
        return (logits / temperature).log_softmax(-1)

    @torch.no_grad()
    def states(self, observations: Tensor) -> Tensor:
        """What enters the last linear layer (N, state_size) at observations (N, d), without gradient."""
        return self._caught(lambda: self.net(fitting(observations, self.net)))

    @torch.no_grad()
    def row_states(self, rows: Sequence[Row]) -> Tensor:
        """The same before every masked-in action of rows, laid end to end (N, state_size), without gradient."""
        if not self.recurrent:
            return self.states(seen(rows))
        caught = self._caught(lambda: through(self.net, rows, self.distribution_of.encode))
        counts = [torch.tensor(row.mask) for row in rows]
        return torch.cat(
            [states[: len(mask)][mask.to(states.device)] for states, mask in zip(caught, counts, strict=True)]
        )

    def value_net(self) -> nn.Module:
        """A fresh network for a critic of its own, whose first values are all 0."""
        net = self._value_net().to(next(self.net.parameters()).device)
        zero(last_linear(net))
        return net

    def observe(self, rollouts: Sequence[Rollout]) -> None:
        """Let the running normaliser, if there is one, take in what was seen; call it between two steps.

        Nothing else moves it: neither sampling nor learning nor evaluation does.
        """
        parts = [r.observations for r in rollouts if r.observations is not None]
        for module in self.net.modules():
            if isinstance(module, Normaliser) and parts:
                module.observe(torch.cat(parts).to(module.mean.device))

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Play `n` episodes of at most `params.max_new_tokens` actions from every prompt.

        All episodes go on together, one action at a time. Where environments are exact the network is computed in
        float64, so that what an episode is batched with does not reach its float32 log-probs.
        """
        return play(self, prompts, n, params, seed=seed, version=version)

    def save(self, folder: str | Path) -> None:
        """Write the weights, normaliser included, as safetensors, and what they are of as JSON, all or nothing."""
        write_policy(folder, self.net, self.record)

    def _caught(self, compute: Callable[[], object]) -> Tensor:
        caught: list[Tensor] = []
        hook = last_linear(self.net).register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
        try:
            compute()
        finally:
            hook.remove()
        return caught[-1]


def allowed(outputs: Tensor, mask: Tensor) -> Tensor:
    """The logits with -inf where an action is not allowed."""
    if mask.shape != outputs.shape or not bool(mask.any(-1).all()):
        none = int((~mask.any(-1)).sum())
        raise ModelError(
            f"The action mask is {tuple(mask.shape)} for logits {tuple(outputs.shape)} and allows nothing at {none} "
            "observations; expected the same shape and an action allowed everywhere. End the episode where none is."
        )
    return outputs.masked_fill(~mask.to(outputs.device), -torch.inf)


def _control(teacher: object) -> ControlPolicy:
    if not isinstance(teacher, ControlPolicy):
        raise ModelError(
            f"The teacher of a control policy is {type(teacher).__name__}; expected a ControlPolicy with the same "
            "actions. Pass one as teacher, or do not ask for teacher_kl."
        )
    return teacher
