"""A reward that was learnt from comparisons of fragments, as a reward source: one number for every step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.rewards.base import Reward
from prefrl.rewards.inverse.buffer import Transitions, transitions_of
from prefrl.rewards.inverse.nets import RewardNet, load_net, save_net
from prefrl.rewards.trajectory.preferences import discounted
from prefrl.types import Rollout, Score

Scaling = Literal["standardise", "scale", "none"]
KIND = "trajectory_reward"


class TrajectoryReward(Reward):
    """The mean over members of `(r_m(s, a, s', done) - shift_m) / scale_m` at every step.

    Comparisons of fragments of one length determine a reward up to a constant a step. So `shift` means nothing where
    all episodes have one length, and decides what living on is worth where they have not.

    Each score has its rewards in `steps`; its part `disagreement` is the mean over steps of the standard deviation
    between members, 0 for a single one.

    Args:
        net: of one or more members.
        shift, scale: (M,) of each member, in float64.
        name: shown in metrics.
    """

    def __init__(
        self, net: RewardNet, *, shift: Tensor | None = None, scale: Tensor | None = None, name: str = KIND
    ) -> None:
        members = net.spec.members
        self.net = net
        self.shift = torch.zeros(members, dtype=torch.float64) if shift is None else shift.double()
        self.scale = torch.ones(members, dtype=torch.float64) if scale is None else scale.double()
        self.name = name

    @classmethod
    def load(cls, path: str) -> TrajectoryReward:
        """A reward from the folder that `save` wrote, or from the run folder of `prefrl fragments`.

        Raises:
            RewardError: there is none, it is another kind of reward, or it cannot be read.
        """
        inside = Path(path).expanduser() / "checkpoints" / "reward"
        net, record = load_net(inside if inside.is_dir() else path)
        if record.get("kind") != KIND:
            raise RewardError(
                f"{path} holds a reward of kind {record.get('kind')!r}; expected {KIND!r}, as prefrl fragments writes "
                "it. Name its folder."
            )
        shift, scale = (torch.tensor(record[name], dtype=torch.float64) for name in ("shift", "scale"))
        return cls(net, shift=shift, scale=scale)

    def save(self, path: str | Path) -> None:
        """Write weights and normalisers as safetensors and the rest as JSON, all or nothing."""
        save_net(self.net, path, {"kind": KIND, "shift": self.shift.tolist(), "scale": self.scale.tolist()})

    def transitions(self, rollouts: Sequence[Rollout]) -> Transitions:
        """Steps of rollouts as the nets take them."""
        return transitions_of(rollouts, self.net.spec.action_size)

    @torch.no_grad()
    def each(self, transitions: Transitions) -> Tensor:
        """Rewards (M, N) by every member, on its scale."""
        raw: Tensor = self.net.each(transitions)
        shift, scale = (x.to(raw.dtype)[:, None] for x in (self.shift, self.scale))
        return (raw - shift) / scale

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """A reward for every step that the policy chose."""
        if not rollouts:
            return []
        found = self.each(self.transitions(rollouts))
        mean, spread = found.mean(0), found.std(0, correction=0)
        counts = [sum(rollout.mask) for rollout in rollouts]
        scores = []
        for rollout, paid, unsure in zip(rollouts, mean.split(counts), spread.split(counts), strict=True):
            places = [i for i, chosen in enumerate(rollout.mask) if chosen]
            parts = {"disagreement": float(unsure.mean())} if places else {}
            scores.append(Score(steps=tuple(zip(places, paid.tolist(), strict=True)), parts=parts))
        return scores

    def gaps(self, pairs: Sequence[tuple[Rollout, Rollout]], discount: float = 1.0) -> Tensor:
        """Return of the first fragment less that of the second under every member (M, P), unscaled: as they are fitted.

        All fragments are computed in one pass.
        """
        transitions = self.transitions([pair[side] for side in (0, 1) for pair in pairs])
        with torch.no_grad():
            first, second = fragment_returns(self.net.each(transitions), 2 * len(pairs), discount).chunk(2, dim=-1)
        return first - second

    def normalise(self, transitions: Transitions, how: Scaling = "standardise") -> None:
        """Set shift and scale of each member by what it pays at these transitions.

        standardise takes mean and deviation off, scale divides by the deviation only; a member that pays the same
        everywhere is not divided.
        """
        raw = self.net.each(transitions).detach().double()
        deviation = raw.std(1, correction=0)
        self.shift = raw.mean(1) if how == "standardise" else torch.zeros(len(raw), dtype=torch.float64)
        varied = deviation > 1e-9 * raw.abs().amax(1).clamp_min(1e-9)
        self.scale = torch.where(varied & (torch.tensor(how != "none")), deviation, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Weights, normalisers and scale."""
        return {"net": self.net.state_dict(), "shift": self.shift, "scale": self.scale}

    def load_state_dict(self, state: Any) -> None:
        """Restore what `state_dict` returned."""
        self.net.load_state_dict(state["net"])
        self.shift, self.scale = state["shift"], state["scale"]


def fragment_returns(rewards: Tensor, fragments: int, discount: float) -> Tensor:
    """Returns (M, F) of rewards (M, F k) of fragments of one length, laid end to end."""
    return discounted(rewards.reshape(len(rewards), fragments, -1), discount)
