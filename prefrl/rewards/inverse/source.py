"""Rewards that learn from demonstrations between two updates of the policy: the same loop as any other reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.model.networks import Normaliser
from prefrl.rewards.base import Reward
from prefrl.rewards.inverse.buffer import (
    Buffer,
    Transitions,
    episodes_of,
    fragments_of,
    joined,
    minibatches,
    occupancy,
    rows_of,
    transitions_of,
)
from prefrl.rewards.inverse.discriminator import Fit, Method, averaged
from prefrl.rewards.inverse.exported import NetReward
from prefrl.rewards.inverse.nets import NetSpec, RewardNet
from prefrl.types import Rollout, Score

if TYPE_CHECKING:
    from prefrl.model.engine import Engine


class InverseReward(Reward):
    """A reward network that `update` improves a little, against the policy's latest samples.

    `score` pays the training reward; `export` gives the test reward, the part that can be used elsewhere.

    Args:
        method: `Gail`, `Airl` or `Gcl`.
        spec: the network; sizes of 0 are taken from the policy when it is attached.
        demonstrations: the expert's episodes; `update` may be given others.
        fit: how it is improved.
        normalise: divide what is paid by its running root mean square.
        seed: of initial weights and batches.
        dtype: of the weights.
        name: how it is called in metrics; the method's name by default.

    Raises:
        RewardError: used before its sizes are known, or, where log pi enters, before an engine is attached.
    """

    def __init__(
        self,
        method: Method,
        spec: NetSpec,
        demonstrations: Sequence[Rollout] = (),
        *,
        fit: Fit | None = None,
        normalise: bool = False,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        name: str = "",
    ) -> None:
        self.method, self.spec, self.fit = method, spec, fit or Fit()
        self.name = name or method.name
        self.demonstrations = list(demonstrations)
        self.buffer = Buffer(self.fit.buffer)
        self._seed, self._dtype = seed, dtype
        self._scale = Normaliser(1) if normalise else None
        self._generator = torch.Generator().manual_seed(seed)
        self._engine: Engine | None = None
        self._paid: NetReward | None = None
        self._expert: Transitions | None = None
        self._expert_version = -1
        if spec.state_size and spec.action_size:
            self._build()

    @property
    def net(self) -> RewardNet:
        """The network."""
        return self.train_reward.net

    @property
    def scaled(self) -> bool:
        """Whether what is paid is divided by its running root mean square."""
        return self._scale is not None

    @property
    def train_reward(self) -> NetReward:
        """What `score` pays: it follows the network as it learns."""
        if self._paid is None:
            raise RewardError(
                f"The reward {self.name!r} does not know the sizes of observations and actions yet. Call "
                "attach(engine) first, or give its NetSpec state_size and action_size."
            )
        return self._paid

    def attach(self, engine: Engine) -> None:
        """Take sizes from the policy, and its log-probs of the demonstrations; again after it was changed by others."""
        self._engine = engine
        if self._paid is None:
            actor: Any = engine.actor
            sizes = {"state_size": actor.observation_size, "action_size": actor.actions}
            self.spec = replace(self.spec, **sizes, discrete=actor.distribution_of.name == "categorical")
            self._build()
        self._remember()

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """The training reward of every action."""
        return self.train_reward.score(rollouts)

    def update(
        self, rollouts: Sequence[Rollout], scores: Sequence[Score] | None = None, demonstrations: Any = None
    ) -> dict[str, float]:
        """Improve the network a little, after the policy was improved on the same rollouts; metrics.

        Log-probs of the rollouts are those they were sampled with. Those of the demonstrations are recomputed under the
        policy that sampled the rollouts: at the end of an update, when it is about to sample the next ones.

        Args:
            rollouts: the policy's latest episodes.
            scores: what they were paid; episodes that could not be scored are left out.
            demonstrations: other expert episodes than those it was made with, for this update.
        """
        kept = [r for r, s in zip(rollouts, scores, strict=True) if s.ok] if scores is not None else list(rollouts)
        kept = [r for r in kept if any(r.mask)]
        if not kept:
            return {}
        version = kept[0].version
        expert = self._known(version) if demonstrations is None else self._measured(demonstrations)
        if demonstrations is not None or not float(self.net.states.count):
            self.net.observe(expert)
        policy = transitions_of(kept, self.spec.action_size, self._ratios(kept)).to(self._dtype)
        self.buffer.add(policy)
        metrics = self._learn(expert) | self._gap(expert, policy)
        if self._scale is not None:
            self._scale.observe(self.method.paid(self.net, policy).detach()[:, None])
        self._remember()
        metrics["left_out"] = float(len(rollouts) - len(kept))
        return {f"irl/{name}": value for name, value in metrics.items()}

    def export(self) -> NetReward:
        """The test reward: a frozen copy of the part that can be used elsewhere, without shaping and log pi."""
        return NetReward(self.net.unshaped(), self.method.exported(), role="test")

    def save(self, path: str | Path) -> None:
        """Write the training reward as it is now; `export().save(path)` writes the other one."""
        self.train_reward.save(path)

    def state_dict(self) -> dict[str, Any]:
        """All that an exact continuation needs: weights, optimizer, normalisers, samples and random numbers."""
        if self._paid is None:
            return {}
        return {
            "net": self.net.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scale": {} if self._scale is None else self._scale.state_dict(),
            "buffer": self.buffer.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; RewardError if it belongs to another reward."""
        try:
            self.net.load_state_dict(state["net"])
            self._optimizer.load_state_dict(state["optimizer"])
            if self._scale is not None:
                self._scale.load_state_dict(state["scale"])
            self.buffer.load_state_dict(state["buffer"])
            self._generator.set_state(state["generator"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise RewardError(
                f"The saved state is not one of reward {self.name!r}: {error}. Resume with the settings the run was "
                "started with."
            ) from error
        self._remember()

    def _build(self) -> None:
        net = RewardNet(self.spec, seed=self._seed).to(self._dtype)
        self._paid = NetReward(net, self.method, role="train", scale=self._scale, name=self.name)
        self._optimizer = torch.optim.AdamW(net.parameters(), lr=self.fit.lr, weight_decay=self.fit.weight_decay)

    def _attached(self) -> Engine:
        if self._engine is None:
            raise RewardError(
                f"The reward {self.name!r} needs the policy's log-probs of the demonstrations. "
                "Call attach(engine) first."
            )
        return self._engine

    def _remember(self) -> None:
        """Measure the demonstrations under the policy as it is: the one that samples next."""
        self._expert = None
        if self._engine is not None and self.method.log_pi is not None and self.demonstrations:
            self._expert = self._measured(self.demonstrations)
            self._expert_version = self._engine.version

    def _known(self, version: int) -> Transitions:
        """The demonstrations, measured under the policy of a version where log pi enters."""
        if not self.demonstrations:
            raise RewardError(f"The reward {self.name!r} has no demonstrations. Give it some: demonstrations=[...].")
        if self._expert is None or (self.method.log_pi is not None and self._expert_version != version):
            self._expert = self._measured(self.demonstrations)
            self._expert_version = version
        return self._expert

    def _measured(self, rollouts: Sequence[Rollout]) -> Transitions:
        """Demonstrations with the log-probs of the policy as it is."""
        if self.method.log_pi is None:
            return transitions_of(rollouts, self.spec.action_size).to(self._dtype)
        engine, rows = self._attached(), rows_of(rollouts)
        logps = engine.logps(rows, "policy")
        impossible = sum(int((~x.isfinite()).sum()) for x in logps)
        if impossible:
            raise RewardError(
                f"The policy gives no probability at all to {impossible} demonstrated actions; expected finite "
                "log-probs. Demonstrations must keep to the bounds and the allowed actions of its environment."
            )
        if self.method.log_pi.to_reference:
            logps = [a - b for a, b in zip(logps, engine.logps(rows, "reference"), strict=True)]
        return transitions_of(rollouts, self.spec.action_size, logps).to(self._dtype)

    def _ratios(self, rollouts: Sequence[Rollout]) -> list[Tensor] | None:
        """Log-ratios of the policy's own episodes, by the log-probs they were sampled with; None for those alone."""
        if self.method.log_pi is None or not self.method.log_pi.to_reference:
            return None
        reference = self._attached().logps(rows_of(rollouts), "reference")
        return [torch.tensor(r.logps) - ref.cpu() for r, ref in zip(rollouts, reference, strict=True)]

    def _learn(self, expert: Transitions) -> dict[str, float]:
        """At most `fit.steps` updates on batches of demonstrations and samples; mean metrics."""
        fit, method, net = self.fit, self.method, self.net
        policy = joined(self.buffer.rounds) if method.whole else self.buffer.mixed(fit.fusion, self._generator)
        if method.whole and fit.fragment:
            expert, policy = fragments_of(expert, fit.fragment), fragments_of(policy, fit.fragment)
        batches = [list(self._batches(k, expert, policy)) for k in range(net.spec.members)]
        found: list[dict[str, float]] = []
        for step in range(fit.steps):
            self._optimizer.zero_grad()
            for member, drawn in enumerate(batches):
                sides = [
                    net.normalised(_part(s, i, method.whole))
                    for s, i in zip((expert, policy), drawn[step], strict=True)
                ]
                loss, metrics = method.loss(net, member, sides[0], sides[1], fit)
                loss.backward()
                found.append(metrics)
            if not all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None):
                raise RewardError(
                    f"The gradient of the reward {self.name!r} is not finite; its weights are unchanged. Lower its lr."
                )
            self._optimizer.step()
            now = averaged(found[-net.spec.members :])  # of this step: one a member
            if min(now.get(f"accuracy_{side}", 0.0) for side in ("expert", "policy")) >= fit.stop_accuracy:
                break
        return averaged(found) | {"steps": float(step + 1)}

    def _batches(self, member: int, expert: Transitions, policy: Transitions) -> list[tuple[Tensor, Tensor]]:
        """Places of both sides for every step of a round; of demonstrations among those the member may see."""
        fit, whole = self.fit, self.method.whole
        sizes = [side.episodes if whole else len(side) for side in (expert, policy)]
        seen = torch.arange(sizes[0])
        if fit.bootstrap and self.spec.members > 1:
            own = torch.Generator().manual_seed(self._seed * 7919 + member)
            seen = torch.randint(sizes[0], (sizes[0],), generator=own)
        drawn = [minibatches(size, fit.batch_size, fit.steps, self._generator) for size in sizes]
        return [(seen[a], b) for a, b in zip(*drawn, strict=True)]

    @torch.no_grad()
    def _gap(self, expert: Transitions, policy: Transitions) -> dict[str, float]:
        """Mean discounted return of expert and policy under f, and how far the expert is ahead."""
        returns = [float((occupancy(s, self.spec.gamma) * self.net(s)).sum()) for s in (expert, policy)]
        return {"return_expert": returns[0], "return_policy": returns[1], "gap": returns[0] - returns[1]}


def _part(side: Transitions, places: Tensor, whole: bool) -> Transitions:
    return episodes_of(side, places) if whole else side.take(places)
