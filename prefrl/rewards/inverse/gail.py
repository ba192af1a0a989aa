"""GAIL: a plain discriminator (arXiv 1606.03476). It imitates; its reward means nothing elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from prefrl.rewards.inverse.buffer import Transitions
from prefrl.rewards.inverse.discriminator import Fit, classification
from prefrl.rewards.inverse.forms import Form, check_form, paid
from prefrl.rewards.inverse.nets import RewardNet


@dataclass(frozen=True, slots=True, kw_only=True)
class Gail:
    """logit D(s, a) = g(s, a); paid is -log(1 - D), log D or the logit itself.

    At the optimum D = 1/2 everywhere: what is paid is a constant, whatever the demonstrator wanted.
    """

    form: Form = "neg_log_one_minus_d"
    name: ClassVar[str] = "gail"
    whole: ClassVar[bool] = False
    log_pi: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_form(self.form)

    def loss(
        self, net: RewardNet, member: int, expert: Transitions, policy: Transitions, fit: Fit
    ) -> tuple[Tensor, dict[str, float]]:
        """Cross-entropy of the logits."""
        logits = net.member(member, expert), net.member(member, policy)
        return classification(net, member, (expert, policy), logits, fit)

    def paid(self, net: RewardNet, transitions: Transitions) -> Tensor:
        """The reward of the mean logit."""
        return paid(net(transitions), self.form)

    def exported(self) -> Gail:
        """The same: there is no other part."""
        return self
