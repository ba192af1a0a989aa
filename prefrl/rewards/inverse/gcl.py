"""Guided cost learning: maximum entropy by importance-weighted episodes of the policy (arXiv 1603.00448)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from prefrl.rewards.inverse.airl import Plain
from prefrl.rewards.inverse.buffer import Transitions, episode_sums
from prefrl.rewards.inverse.discriminator import Fit, gradient_penalty
from prefrl.rewards.inverse.estimators import (
    effective_share,
    importance_weights,
    likelihood_loss,
    log_partition,
    mixture_log_ratios,
)
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.nets import RewardNet


@dataclass(frozen=True, slots=True, kw_only=True)
class Gcl:
    """-mean R(demonstration) / beta + log Z, with Z estimated on the policy's episodes weighted exp(R / beta) / pi.

    R and log pi of an episode are sums discounted by gamma alike: for the policy that is optimal for the reward they
    differ by the value of the start, so that all weights are equal there. What is paid is as for `Airl`.

    `Fit.fragment` hands it pieces of episodes, which it takes for whole ones: an approximation, whose optimum is
    R / beta = log pi_E + log d_E(start) / d(start) up to a constant, d the share of pieces that start in a state.
    """

    log_pi: LogPi = field(default_factory=LogPi)
    name: ClassVar[str] = "gcl"
    whole: ClassVar[bool] = True

    def loss(
        self, net: RewardNet, member: int, expert: Transitions, policy: Transitions, fit: Fit
    ) -> tuple[Tensor, dict[str, float]]:
        """The negative log-likelihood of the demonstrations per episode; warns under 10 % effective samples."""
        gamma = net.spec.gamma
        returns = [episode_sums(net.member(member, side), side, gamma) / self.log_pi.beta for side in (expert, policy)]
        ratios = [episode_sums(side.log_ratios, side, gamma) for side in (expert, policy)]
        samples, log_ratios = fused(returns, ratios, fit.fusion)
        loss = likelihood_loss(returns[0], samples, log_ratios)
        metrics = {
            "loss": float(loss.detach()),
            "ess": effective_share(importance_weights(samples, log_ratios)),
        }
        if fit.gradient_penalty:
            penalty = gradient_penalty(net, member, expert, policy)
            loss = loss + fit.gradient_penalty * penalty
            metrics["gradient_penalty"] = float(penalty.detach())
        return loss, metrics

    def paid(self, net: RewardNet, transitions: Transitions) -> Tensor:
        """f, or f - beta log pi."""
        return self.log_pi.paid(net(transitions), transitions.log_ratios)

    def exported(self) -> Plain:
        """g alone, without log pi."""
        return Plain()


def fused(returns: list[Tensor], ratios: list[Tensor], fusion: float) -> tuple[Tensor, Tensor]:
    """Samples for log Z: the policy's episodes and, for a share `fusion`, demonstrations, under their mixture.

    Nobody knows how likely the demonstrator made an episode; the reward's own model exp(R) / Z stands in for it, with
    Z as the policy's episodes alone estimate it (arXiv 1611.03852, section 3).
    """
    count = min(len(returns[0]), math.ceil(fusion / (1.0 - fusion) * len(returns[1])))
    if not count:
        return returns[1], ratios[1]
    samples = torch.cat([returns[1], returns[0][:count]])
    own = torch.cat([ratios[1], ratios[0][:count]])
    modelled = (samples - log_partition(returns[1], ratios[1])).detach()
    share = count / len(samples)
    return samples, mixture_log_ratios([own, modelled], [1.0 - share, share])
