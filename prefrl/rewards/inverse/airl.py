"""AIRL: a discriminator that knows the policy, so that what it has left to learn is the reward (arXiv 1710.11248)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from prefrl.rewards.inverse.buffer import Transitions
from prefrl.rewards.inverse.discriminator import Fit, classification
from prefrl.rewards.inverse.forms import LogPi
from prefrl.rewards.inverse.nets import RewardNet


def airl_logit(f: Tensor, log_ratio: Tensor, beta: float = 1.0) -> Tensor:
    """logit D = f / beta - log pi, or minus log pi - log pi_ref where there is a reference: D = e^f / (e^f + pi)."""
    return f / beta - log_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The network itself is paid: a reward that was learnt and is used."""

    name: ClassVar[str] = "plain"

    def paid(self, net: RewardNet, transitions: Transitions) -> Tensor:
        """f, which is g for a network without a potential."""
        value: Tensor = net(transitions)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Airl:
    """logit D = f(s, a, s') / beta - log pi(a | s), with f = g + gamma (1 - terminated) h(s') - h(s).

    At the optimum D = 1/2, f / beta is the log-prob of the demonstrator, and a g of states alone is its reward up to a
    constant, where that can be told at all. What is paid is f; and beta log pi once, by whom `log_pi.pay` says.
    """

    log_pi: LogPi = field(default_factory=LogPi)
    name: ClassVar[str] = "airl"
    whole: ClassVar[bool] = False

    def loss(
        self, net: RewardNet, member: int, expert: Transitions, policy: Transitions, fit: Fit
    ) -> tuple[Tensor, dict[str, float]]:
        """Cross-entropy of the logits."""
        sides = (expert, policy)
        logits = [airl_logit(net.member(member, side), side.log_ratios, self.log_pi.beta) for side in sides]
        return classification(net, member, sides, (logits[0], logits[1]), fit)

    def paid(self, net: RewardNet, transitions: Transitions) -> Tensor:
        """f, or f - beta log pi = beta logit D: never both, never neither."""
        return self.log_pi.paid(net(transitions), transitions.log_ratios)

    def exported(self) -> Plain:
        """g alone, without h and without log pi."""
        return Plain()
