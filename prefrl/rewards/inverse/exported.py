"""A reward network in use: what training pays, or the part of it that can be used elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.model.networks import Normaliser
from prefrl.rewards.base import Reward
from prefrl.rewards.inverse.airl import Airl, Plain
from prefrl.rewards.inverse.buffer import Transitions, transitions_of
from prefrl.rewards.inverse.discriminator import Paying
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.gail import Gail
from prefrl.rewards.inverse.gcl import Gcl
from prefrl.rewards.inverse.nets import RewardNet, load_net, save_net
from prefrl.types import Rollout, Score

Role = Literal["train", "test"]


class NetReward(Reward):
    """Pays every step of an episode by a network; never learns.

    Args:
        net: the network.
        paying: what is made of its numbers.
        role: `train`, with the shaping and log pi that help while policy and reward are learnt together; or `test`,
            the part that can be used elsewhere. They are different rewards, and a file says which one it holds.
        scale: what is paid is divided by its root mean square, and never centred: a constant would pay for living.
        name: how it is called in metrics.
    """

    def __init__(
        self,
        net: RewardNet,
        paying: Paying,
        *,
        role: Role = "test",
        scale: Normaliser | None = None,
        name: str = "reward_net",
    ) -> None:
        self.net, self.paying, self.role, self.scale, self.name = net, paying, role, scale, name

    @torch.no_grad()
    def values(self, transitions: Transitions) -> Tensor:
        """What is paid for transitions (N,)."""
        seen, known = transitions.state.shape[-1], self.net.spec.state_size
        if seen != known:
            raise RewardError(
                f"The reward {self.name!r} is of {known} numbers in an observation, but episodes have {seen}. Use it "
                "in an environment with the observations that it was learnt from."
            )
        raw = self.paying.paid(self.net, transitions.to(self.net.dtype))
        return raw if self.scale is None else raw / size(self.scale).to(raw.dtype)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """A reward at every action; with an ensemble, the part `disagreement`: its deviation a step, on average."""
        for rollout in rollouts:
            if rollout.observations is None:
                raise RewardError(
                    f"The rollout of {rollout.prompt.id!r} has no observations, but the reward {self.name!r} is of "
                    "episodes in an environment. Texts are scored by the kind text_reward."
                )
        playing = [rollout for rollout in rollouts if any(rollout.mask)]
        if not playing:
            return [Score(value=0.0) for _ in rollouts]
        transitions = transitions_of(playing, self.net.spec.action_size)
        counts = [sum(rollout.mask) for rollout in playing]
        values = self.values(transitions).double().split(counts)
        doubts: Sequence[Tensor | None] = [None] * len(playing)
        if self.net.spec.members > 1:
            with torch.no_grad():
                doubts = self.net.each(transitions.to(self.net.dtype)).std(0, correction=0).split(counts)
        scored = iter([_score(r, v, d) for r, v, d in zip(playing, values, doubts, strict=True)])
        return [next(scored) if any(rollout.mask) else Score(value=0.0) for rollout in rollouts]

    def save(self, path: str | Path) -> None:
        """Write network, normalisers and what is paid, as safetensors and JSON."""
        how = {"method": self.paying.name, **_settings(self.paying)}
        seen = self.scale and (self.scale.mean, self.scale.variance, self.scale.count)
        scale = [float(x) for x in seen] if seen else None
        save_net(self.net, path, {"role": self.role, "name": self.name, "paying": how, "scale": scale})

    @classmethod
    def load(cls, path: str | Path, name: str = "") -> NetReward:
        """A saved reward, which pays bit for bit what it paid when it was saved.

        Raises:
            RewardError: there is none.
        """
        net, record = load_net(path)
        try:
            paying = _paying(record["paying"])
            scale = None if record["scale"] is None else _scale(*record["scale"])
            return cls(net, paying, role=record["role"], scale=scale, name=name or record["name"])
        except (KeyError, TypeError) as error:
            raise RewardError(f"The record of the reward in {path} lacks {error}; save the reward anew.") from error


def _score(rollout: Rollout, values: Tensor, doubts: Tensor | None) -> Score:
    places = [i for i, sampled in enumerate(rollout.mask) if sampled]
    parts = {} if doubts is None else {"disagreement": float(doubts.mean())}
    return Score(steps=tuple(zip(places, values.tolist(), strict=True)), parts=parts)


def _settings(paying: Paying) -> dict[str, Any]:
    if isinstance(paying, Gail):
        return {"form": paying.form}
    return {"log_pi": asdict(paying.log_pi)} if isinstance(paying, Airl | Gcl) else {}


def _paying(how: Mapping[str, Any]) -> Paying:
    if how["method"] == "gail":
        return Gail(form=how["form"])
    if how["method"] == "plain":
        return Plain()
    log_pi = LogPi(**how["log_pi"])
    return Airl(log_pi=log_pi) if how["method"] == "airl" else Gcl(log_pi=log_pi)


def size(scale: Normaliser) -> Tensor:
    """Root mean square (1,) of what a normaliser has seen."""
    return (scale.mean.square() + scale.variance).sqrt().clamp(min=1e-8)


def _scale(mean: float, variance: float, count: float) -> Normaliser:
    scale = Normaliser(1)
    for name, value in (("mean", mean), ("variance", variance), ("count", count)):
        getattr(scale, name).fill_(value)
    return scale
