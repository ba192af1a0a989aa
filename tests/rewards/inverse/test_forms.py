"""What is paid for a logit, and log pi paid once."""

from __future__ import annotations

import math

import pytest
import torch

from prefrl.errors import ConfigError
from prefrl.rewards.inverse.forms import LogPi, paid

LOGITS = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)


def test_forms_in_numbers():
    d = LOGITS.sigmoid()
    assert torch.allclose(paid(LOGITS, "neg_log_one_minus_d"), -(1 - d).log())
    assert torch.allclose(paid(LOGITS, "log_d"), d.log())
    assert torch.equal(paid(LOGITS, "logit"), LOGITS)
    assert paid(LOGITS, "neg_log_one_minus_d").tolist() == pytest.approx([0.126928, math.log(2), 3.048587], abs=1e-6)


@pytest.mark.parametrize(
    ("form", "steps_left", "sign"), [("neg_log_one_minus_d", 9, 1), ("log_d", 9, -1), ("logit", 9, 0)]
)
def test_living_on_is_paid_charged_or_neither(form, steps_left, sign):
    """A policy that cannot be told from its expert earns this for steps after which the expert is dead."""
    longer = float(paid(torch.zeros(steps_left, dtype=torch.float64), form).sum())
    assert longer == pytest.approx(sign * steps_left * math.log(2))


def test_no_logit_overflows():
    far = torch.tensor([-1e4, 1e4])
    assert paid(far, "neg_log_one_minus_d").tolist() == [0.0, 1e4]
    assert paid(far, "log_d").tolist() == [-1e4, 0.0]


def test_log_pi_is_in_the_reward_or_it_is_not():
    f, log_pi = torch.tensor([1.0, 2.0]), torch.tensor([-0.5, -3.0])
    assert LogPi(beta=0.5, pay="reward").paid(f, log_pi).tolist() == [1.25, 3.5]
    assert LogPi(beta=0.5, pay="kl").paid(f, log_pi).tolist() == [1.0, 2.0]
    assert LogPi(beta=0.5, pay="entropy").paid(f, log_pi).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("pay", "kl", "entropy", "times"),
    [
        ("reward", 0.5, 0.0, "more than once"),
        ("reward", 0.0, 0.5, "more than once"),
        ("kl", 0.0, 0.0, "not at all"),
        ("kl", 0.5, 0.5, "more than once"),
        ("kl", 0.05, 0.0, "another measure"),
        ("entropy", 0.0, 0.0, "not at all"),
        ("entropy", 0.5, 0.5, "more than once"),
        ("entropy", 0.0, 0.1, "another measure"),
    ],
)
def test_twice_never_or_otherwise_is_refused(pay, kl, entropy, times):
    with pytest.raises(ConfigError, match=times):
        LogPi(beta=0.5, pay=pay).check(kl=kl, entropy=entropy)


@pytest.mark.parametrize(("pay", "kl", "entropy"), [("reward", 0.0, 0.0), ("kl", 0.5, 0.0), ("entropy", 0.0, 0.5)])
def test_once_is_fine(pay, kl, entropy):
    LogPi(beta=0.5, pay=pay).check(kl=kl, entropy=entropy)
    if pay != "entropy":
        LogPi(beta=0.5, pay=pay).check(kl=kl, entropy=entropy, in_reward=True, scaled=True)
    if pay != "reward":
        with pytest.raises(ConfigError, match="divided by their spread"):
            LogPi(beta=0.5, pay=pay).check(kl=kl, entropy=entropy, in_reward=False, scaled=True)


@pytest.mark.parametrize(("settings", "said"), [({"pay": "klr"}, "Did you mean 'kl'"), ({"beta": 0.0}, "positive")])
def test_what_is_no_log_pi(settings, said):
    with pytest.raises(ConfigError, match=said):
        LogPi(**settings)
