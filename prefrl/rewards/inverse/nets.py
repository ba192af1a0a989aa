"""Reward networks over transitions: inputs by choice, normalised, shaped by a potential, alone or as an ensemble."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from prefrl.errors import ConfigError, RewardError
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.networks import Normaliser, mlp
from prefrl.rewards.inverse.buffer import Transitions

Input = Literal["state", "action", "next_state", "done"]
WEIGHTS, RECORD = "reward_net.safetensors", "reward_net.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSpec:
    """What a reward network is made of.

    state_size, action_size  numbers of an observation and of an action (one-hot where it is discrete)
    discrete                 whether actions are discrete; one-hot numbers are not normalised
    inputs                   what g sees of a transition
    hidden, potential        units of the hidden layers of g and of h
    shaped                   whether there is a potential h
    gamma                    discount of h(s'); must be the discount that the policy is improved with
    members                  networks in the ensemble
    normalise                take mean and deviation of the demonstrations off states and continuous actions
    """

    state_size: int
    action_size: int
    discrete: bool = True
    inputs: tuple[Input, ...] = ("state", "action")
    hidden: tuple[int, ...] = (32, 32)
    shaped: bool = False
    potential: tuple[int, ...] = (32, 32)
    gamma: float = 1.0
    members: int = 1
    normalise: bool = True

    def __post_init__(self) -> None:
        known = ("state", "action", "next_state", "done")
        if not self.inputs or not set(self.inputs) <= set(known):
            raise ConfigError(f"inputs is {list(self.inputs)}; expected some of {', '.join(known)}.")
        if self.members < 1 or not 0.0 <= self.gamma <= 1.0:
            raise ConfigError(f"members is {self.members}, gamma {self.gamma}; expected 1 or more, and one in [0, 1].")

    @property
    def input_size(self) -> int:
        """Numbers that g sees."""
        sizes = {"state": self.state_size, "action": self.action_size, "next_state": self.state_size, "done": 1}
        return sum(sizes[name] for name in self.inputs)


class RewardNet(nn.Module):
    """g(s, a, s', done) of each member of an ensemble, and their mean.

    Args:
        spec: sizes and layers.
        seed: of the initial weights, each member's own.
    """

    def __init__(self, spec: NetSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.reward = nn.ModuleList(mlp(spec.input_size, 1, spec.hidden) for _ in range(spec.members))
            self.potential = nn.ModuleList(
                mlp(spec.state_size, 1, spec.potential) for _ in range(spec.members if spec.shaped else 0)
            )
        self.states = Normaliser(spec.state_size)
        self.actions = Normaliser(spec.action_size)

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        return next(self.parameters()).dtype

    def observe(self, transitions: Transitions) -> None:
        """Let the normalisers learn from transitions; nothing else ever moves them.

        Those of the demonstrations are meant: a policy that strays far off would squeeze them into a dot.
        """
        if self.spec.normalise:
            self.states.observe(transitions.state)
            if not self.spec.discrete:
                self.actions.observe(transitions.action)

    def normalised(self, transitions: Transitions) -> Transitions:
        """Transitions as the layers see them."""
        if not self.spec.normalise:
            return transitions
        return replace(
            transitions,
            state=self.states(transitions.state),
            next_state=self.states(transitions.next_state),
            action=transitions.action if self.spec.discrete else self.actions(transitions.action),
        )

    def reward_of(self, member: int, normalised: Transitions) -> Tensor:
        """g (N,) of a member."""
        given = {
            "state": normalised.state,
            "action": normalised.action,
            "next_state": normalised.next_state,
            "done": normalised.terminated[:, None],
        }
        seen = torch.cat([given[name] for name in self.spec.inputs], -1)
        value: Tensor = self.reward[member](seen).squeeze(-1)
        return value

    def member(self, member: int, normalised: Transitions) -> Tensor:
        """f (N,) of a member: g + gamma (1 - terminated) h(s') - h(s), or g without a potential.

        At a time limit h(s') stays: more was to come.
        """
        g = self.reward_of(member, normalised)
        if not self.spec.shaped:
            return g
        h = self.potential[member]
        after = (1.0 - normalised.terminated) * h(normalised.next_state).squeeze(-1)
        shaped: Tensor = g + self.spec.gamma * after - h(normalised.state).squeeze(-1)
        return shaped

    def each(self, transitions: Transitions) -> Tensor:
        """f (members, N)."""
        seen = self.normalised(transitions)
        return torch.stack([self.member(k, seen) for k in range(self.spec.members)])

    def forward(self, transitions: Transitions) -> Tensor:
        """f (N,), the mean over members."""
        return self.each(transitions).mean(0)

    def unshaped(self) -> RewardNet:
        """A frozen copy without h: the part that means the same in another environment."""
        bare = RewardNet(replace(self.spec, shaped=False))
        state = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("potential.")}
        bare.load_state_dict(state)
        return bare.to(self.dtype).requires_grad_(False).eval()


def save_net(net: RewardNet, folder: str | Path, record: Mapping[str, Any]) -> None:
    """Write weights and normalisers as safetensors and all else as JSON, all or nothing.

    Args:
        net: the network.
        folder: where to; what stood there is replaced.
        record: what else must be known to use it.
    """
    dtype = str(net.dtype).removeprefix("torch.")
    content = {**record, "dtype": dtype, "net": asdict(net.spec)}
    with atomic_folder(folder) as scratch:
        save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, scratch / WEIGHTS)
        (scratch / RECORD).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_net(folder: str | Path) -> tuple[RewardNet, dict[str, Any]]:
    """A network that `save_net` wrote, frozen, and its record.

    Raises:
        RewardError: there is none, or it cannot be read.
    """
    folder = Path(folder).expanduser()
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        spec = dict(record["net"])
        tuples = {name: tuple(spec[name]) for name in ("inputs", "hidden", "potential")}
        net = RewardNet(NetSpec(**{**spec, **tuples})).to(getattr(torch, record["dtype"]))
        net.load_state_dict(load_file(folder / WEIGHTS))
    except Exception as error:  # missing and damaged files have exceptions of several libraries
        raise RewardError(
            f"No reward network can be read from {folder}: {error}. Name a folder that prefrl irl, or save(path) of a "
            "learnt reward, has written."
        ) from error
    return net.requires_grad_(False).eval(), record
