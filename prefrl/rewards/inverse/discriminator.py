"""Telling demonstrations from the policy's own samples: loss, gradient penalty, and how well it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from prefrl.errors import ConfigError
from prefrl.rewards.inverse.buffer import Transitions
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.nets import RewardNet


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How a reward is improved between two updates of the policy.

    steps             updates a round
    batch_size        transitions of either side an update (episodes, or fragments, for guided cost learning); 0 takes
                      all
    lr, weight_decay  of Adam with decoupled decay
    buffer            rounds of the policy's own samples that are kept
    fusion            share of the policy's side drawn from earlier rounds; guided cost learning draws from all rounds
                      alike, and has so many demonstrations among the samples its partition function is estimated on
    fragment          steps of the pieces that guided cost learning weighs in place of whole episodes, which is an
                      approximation; 0 weighs whole episodes
    gradient_penalty  weight of (|gradient| - 1)^2 on points between both sides
    label_smoothing   targets are 1 - x and x
    stop_accuracy     accuracy on both sides from which a round's updates stop
    bootstrap         members of an ensemble see their own resampling of the demonstrations
    """

    steps: int = 4
    batch_size: int = 512
    lr: float = 1e-3
    weight_decay: float = 0.0
    buffer: int = 1
    fusion: float = 0.0
    fragment: int = 0
    gradient_penalty: float = 0.0
    label_smoothing: float = 0.0
    stop_accuracy: float = 1.0
    bootstrap: bool = True

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 0 or self.buffer < 1 or self.fragment < 0 or not self.lr > 0:
            raise ConfigError(
                f"steps is {self.steps}, batch_size {self.batch_size}, buffer {self.buffer}, fragment {self.fragment} "
                f"and lr {self.lr}; expected 1 or more, 0 or more, 1 or more, 0 or more, and a positive number."
            )
        if not (0.0 <= self.fusion < 1.0 and 0.0 <= self.label_smoothing < 0.5 and self.gradient_penalty >= 0):
            raise ConfigError(
                f"fusion is {self.fusion}, label_smoothing {self.label_smoothing} and gradient_penalty "
                f"{self.gradient_penalty}; expected numbers in [0, 1), in [0, 0.5), and 0 or more."
            )


class Paying(Protocol):
    """What is paid for transitions."""

    @property
    def name(self) -> str: ...

    def paid(self, net: RewardNet, transitions: Transitions) -> Tensor:
        """(N,) rewards."""
        ...


class Method(Protocol):
    """What sets the methods apart: a loss, what is paid, and what of it can be used elsewhere.

    whole   batches are whole episodes
    log_pi  how log pi is paid, where it enters at all
    """

    @property
    def name(self) -> str: ...

    @property
    def whole(self) -> bool: ...

    @property
    def log_pi(self) -> LogPi | None: ...

    def loss(
        self, net: RewardNet, member: int, expert: Transitions, policy: Transitions, fit: Fit
    ) -> tuple[Tensor, dict[str, float]]:
        """Loss of one member on a batch that its normalisers have seen, and metrics."""
        ...

    def paid(self, net: RewardNet, transitions: Transitions) -> Tensor:
        """The training reward (N,) of transitions."""
        ...

    def exported(self) -> Paying:
        """What is paid for the network without its potential, once learning is over."""
        ...


def binary_loss(expert: Tensor, policy: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy of logits, the two sides weighing the same: log 2 where nothing can be told."""
    high, low = 1.0 - smoothing, smoothing
    as_expert = high * softplus(-expert) + low * softplus(expert)
    as_policy = high * softplus(policy) + low * softplus(-policy)
    return 0.5 * (as_expert.mean() + as_policy.mean())


def binary_metrics(expert: Tensor, policy: Tensor) -> dict[str, float]:
    """Accuracy on either side (a logit of 0 is half right) and the mean entropy of D in nats: log 2 at D = 1/2."""
    expert, policy = expert.detach(), policy.detach()
    both = torch.cat([expert, policy])
    p = both.sigmoid()
    entropy = p * softplus(-both) + (1.0 - p) * softplus(both)
    return {
        "accuracy_expert": float(((expert > 0).float() + 0.5 * (expert == 0)).mean()),
        "accuracy_policy": float(((policy < 0).float() + 0.5 * (policy == 0)).mean()),
        "entropy": float(entropy.mean()),
    }


def gradient_penalty(net: RewardNet, member: int, expert: Transitions, policy: Transitions) -> Tensor:
    """Mean (|df/dx| - 1)^2 on the lines between demonstrations and samples (arXiv 1704.00028), x as the layers see it.

    Where on a line each point lies depends on its place in the batch alone: no random numbers are drawn.
    """
    n = min(len(expert), len(policy))
    share = ((torch.arange(n, dtype=torch.float64) + 0.5) * 0.6180339887498949 % 1.0).to(expert.state.dtype)
    points = {
        name: torch.lerp(getattr(policy, name)[:n], getattr(expert, name)[:n], share[:, None]).requires_grad_()
        for name in ("state", "action", "next_state")
    }
    between = replace(policy.take(torch.arange(n)), **points)
    value = net.member(member, between).sum()
    found = torch.autograd.grad(value, list(points.values()), create_graph=True, allow_unused=True)
    norm = torch.cat([g for g in found if g is not None], -1).square().sum(-1).add(1e-12).sqrt()
    return (norm - 1.0).square().mean()


def classification(
    net: RewardNet, member: int, sides: tuple[Transitions, Transitions], logits: tuple[Tensor, Tensor], fit: Fit
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a discriminator with its penalty, and metrics."""
    loss, metrics = binary_loss(*logits, fit.label_smoothing), binary_metrics(*logits)
    metrics["loss"] = float(loss.detach())
    if fit.gradient_penalty:
        penalty = gradient_penalty(net, member, *sides)
        loss = loss + fit.gradient_penalty * penalty
        metrics["gradient_penalty"] = float(penalty.detach())
    return loss, metrics


def averaged(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of every metric over those that have it."""
    names = dict.fromkeys(name for metrics in found for name in metrics)
    return {n: sum(m[n] for m in found if n in m) / sum(n in m for m in found) for n in names}
