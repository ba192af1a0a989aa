"""Episodes of a control policy, all played together: one call of the network an action."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from prefrl.config import SamplingConfig
from prefrl.errors import ModelError
from prefrl.model.networks import fitting
from prefrl.model.recurrent import Recurrent
from prefrl.rollout.episodes import Plan, plan_episodes
from prefrl.types import Prompt, Rollout, StopReason

if TYPE_CHECKING:
    from prefrl.model.control.policy import ControlPolicy


class _Played:
    """What happened, by episode and time. Made when the first numbers are there, of which it takes the types."""

    def __init__(self, episodes: int, steps: int, first: Tensor) -> None:
        self.shape = (episodes, steps)
        self.observations = first.new_zeros(episodes, steps + 1, *first.shape[1:])
        self.observations[:, 0] = first
        self.lengths = torch.zeros(episodes, dtype=torch.long)
        self.cut = torch.ones(episodes, dtype=torch.bool)
        self.outputs: Tensor | None = None
        self.actions: Tensor | None = None

    def add(self, step: int, live: Tensor, outputs: Tensor, actions: Tensor) -> None:
        if self.outputs is None or self.actions is None:
            self.outputs = outputs.new_zeros(*self.shape, *outputs.shape[1:])
            self.actions = actions.new_zeros(*self.shape, *actions.shape[1:])
        self.outputs[live, step] = outputs
        self.actions[live, step] = actions


class _Actor:
    """The network with the memory of the episodes that go on."""

    def __init__(self, policy: ControlPolicy, episodes: int, exact: bool) -> None:
        self.net: nn.Module = copy.deepcopy(policy.net).to("cpu", torch.float64) if exact else policy.net
        self.over, self.mask = policy.distribution_of, policy.mask
        self._state: Tensor | None = None
        parameter = next(self.net.parameters())
        self._before = parameter.new_zeros(episodes, self.over.width)

    def outputs(self, observations: Tensor) -> Tensor:
        from prefrl.model.control.policy import allowed

        seen = fitting(observations, self.net)
        if isinstance(self.net, Recurrent):
            outputs, self._state = self.net(seen[:, None], self._before[:, None], self._state)
            outputs = outputs[:, 0]
        else:
            outputs = self.net(seen)
        return outputs if self.mask is None else allowed(outputs, self.mask(observations))

    def remember(self, actions: Tensor, going_on: Tensor | None) -> None:
        if self._state is None:
            return
        self._before = self.over.encode(actions).to(self._before)
        if going_on is not None:
            self._before, self._state = self._before[going_on], self._state[:, going_on]


def play(
    policy: ControlPolicy, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int
) -> list[Rollout]:
    """See `ControlPolicy.sample`."""
    environments, over, steps = policy.environments, policy.distribution_of, params.max_new_tokens
    if environments is None:
        raise ModelError("The policy has no environment to act in. Make it with make=... or environments=...")
    plans = plan_episodes(prompts, n, seed, steps, over.draws)
    if not plans:
        return []
    uniforms = torch.stack([plan.uniforms for plan in plans])
    now = environments.reset(plans)
    played, live = _Played(len(plans), steps, now), torch.arange(len(plans))
    actor = _Actor(policy, len(plans), environments.exact)
    choose = _chooser(policy, params)
    for step in range(steps):
        outputs = actor.outputs(now)
        actions = choose(outputs, uniforms[live, step])
        moved = environments.step(live, actions)
        played.add(step, live, outputs, actions)
        now = moved.observations
        played.observations[live, step + 1] = now
        played.lengths[live] = step + 1
        ended = moved.terminated | moved.truncated
        going_on = None
        if bool(ended.any()):
            played.cut[live[moved.terminated]] = False
            going_on = ~ended
            live, now = live[going_on], now[going_on]
        if not len(live):
            break
        actor.remember(actions, going_on)
    return _rollouts(policy, plans, played, environments.reports(), params, version)


def _chooser(policy: ControlPolicy, params: SamplingConfig) -> Callable[[Tensor, Tensor], Tensor]:
    over = policy.distribution_of
    if not params.temperature:
        return lambda outputs, _: over.best(outputs).cpu()
    return lambda outputs, uniforms: over.draw(outputs, uniforms.to(outputs.device), params.temperature).cpu()


def _rollouts(
    policy: ControlPolicy,
    plans: Sequence[Plan],
    played: _Played,
    reports: Sequence[dict[str, object]],
    params: SamplingConfig,
    version: int,
) -> list[Rollout]:
    assert played.outputs is not None and played.actions is not None, "there is at least one step"
    outputs, actions = played.outputs.flatten(0, 1), played.actions.flatten(0, 1)
    logps = policy.distribution_of.log_prob(outputs, actions, params.temperature or 1.0).float().cpu()
    whole = not actions.is_floating_point()
    rollouts = []
    for i, (plan, n, cut) in enumerate(zip(plans, played.lengths.tolist(), played.cut.tolist(), strict=True)):
        own = played.actions[i, :n]
        ids = tuple(own.tolist()) if whole else (0,) * n
        rollouts.append(
            Rollout(
                prompt=plan.prompt,
                completion_ids=ids,
                mask=(True,) * n,
                logps=tuple(logps.view(played.shape)[i, :n].tolist()),
                text=" ".join(map(str, ids)) if whole else f"{n} actions",
                stop=StopReason.LENGTH if cut else StopReason.ENVIRONMENT,
                group=plan.group,
                version=version,
                observations=played.observations[i, : n + 1].clone(),
                actions=None if whole else own.float().clone(),
                info=reports[i],
            )
        )
    return rollouts
