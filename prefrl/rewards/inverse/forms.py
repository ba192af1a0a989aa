"""What is paid for a discriminator's opinion, and how often log pi is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from prefrl.errors import ConfigError, did_you_mean

Form = Literal["neg_log_one_minus_d", "log_d", "logit"]
Pay = Literal["reward", "kl", "entropy"]


def paid(logits: Tensor, form: Form) -> Tensor:
    """The reward for discriminator logits, D = sigmoid(logit) the probability of a demonstration.

    neg_log_one_minus_d  -log(1 - D) >= 0: every further step pays, so that a policy lives on where its expert dies
    log_d                log D <= 0: every further step costs, so that a policy ends an episode as soon as it can
    logit                log D - log(1 - D), of either sign: 0 where policy and expert cannot be told apart

    Where an episode's length is not the policy's doing all three rank policies alike at the optimum.
    """
    softplus = torch.nn.functional.softplus
    return {"neg_log_one_minus_d": softplus(logits), "log_d": -softplus(-logits), "logit": logits}[form]


def check_form(form: str) -> None:
    """Refuse an unknown form."""
    _check("form", form, get_args(Form))


def _check(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ConfigError(f"{name} is {value!r}; valid: {', '.join(valid)}.{did_you_mean(value, valid)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPi:
    """How a reward's log pi is paid: once.

    The demonstrations are explained by a policy that maximises E sum(r - beta * (log pi - log pi_ref)). A reward learnt
    under that reading belongs to an optimizer that seeks the same.

    beta  temperature of the demonstrator, and weight of log pi
    pay   `reward`: f - beta log pi is paid; `kl`, `entropy`: f is paid, and the optimizer charges log pi at beta
    """

    beta: float = 1.0
    pay: Pay = "reward"

    def __post_init__(self) -> None:
        _check("pay", self.pay, get_args(Pay))
        if not 0.0 < self.beta < math.inf:
            raise ConfigError(f"beta is {self.beta}; expected a positive number.")

    @property
    def to_reference(self) -> bool:
        """Whether log pi is taken relative to the reference, as the optimizer's KL is; else from nothing."""
        return self.pay == "kl"

    def paid(self, f: Tensor, log_ratios: Tensor) -> Tensor:
        """f, or f - beta log pi."""
        return f - self.beta * log_ratios if self.pay == "reward" else f

    def check(self, *, kl: float, entropy: float, in_reward: bool = True, scaled: bool = False) -> None:
        """Refuse an optimizer with which log pi would be paid twice, not at all, or in another measure.

        Args:
            kl: the optimizer's coefficient of the KL to the reference.
            entropy: its coefficient of an entropy bonus.
            in_reward: whether that KL is paid in the reward, before advantages are scaled, or in the loss.
            scaled: whether advantages are divided by their spread, so that a coefficient in the loss has other units.

        Raises:
            ConfigError: says what to set.
        """
        wanted = {"reward": (0.0, 0.0), "kl": (self.beta, 0.0), "entropy": (0.0, self.beta)}[self.pay]
        if (kl, entropy) != wanted:
            none = self.pay != "reward" and not kl and not entropy
            times = "not at all" if none else "more than once, or in another measure"
            raise ConfigError(
                f"log pi is paid as {self.pay!r} with beta {self.beta}, but the algorithm's kl.coef is {kl} and its "
                f"entropy {entropy}: it would be paid {times}. Set algorithm.kl.coef to {wanted[0]} and "
                f"algorithm.entropy to {wanted[1]}, or choose another pay."
            )
        in_loss = self.pay == "entropy" or (self.pay == "kl" and not in_reward)
        if in_loss and scaled:
            raise ConfigError(
                f"log pi is paid as {self.pay!r} in the loss with beta {self.beta}, but advantages are divided by "
                "their spread, so that beta has other units there. Set algorithm.credit.scale to 'none', pay to "
                "'reward', or, for 'kl', algorithm.kl.place to 'reward'."
            )
