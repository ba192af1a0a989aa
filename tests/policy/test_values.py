"""What critics learn, by hand: squared error and cross-entropy, their clips and gradients, and the yes objective."""

from __future__ import annotations

import math

import pytest
import torch
from fakes import alone, batch_of, parts, read, scored

from prefrl.errors import ConfigError
from prefrl.policy.credit import CreditState, credit
from prefrl.policy.critic_metrics import Probe, plain_explained_variance
from prefrl.policy.parts import CriticSpec
from prefrl.policy.rows import value_rows
from prefrl.policy.values import bernoulli_loss, critic_objective, yes_objective
from prefrl.types import Row

STATE = CreditState(kl_coef=0.0)


def row(**streams):
    n = len(next(iter(streams.values())))
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in streams.items()}
    return Row(prompt_ids=(1,), completion_ids=(2,) * n, mask=(True,) * n, streams=tensors)


def loss_at(value, spec, returns=(1.0,) * 3 + (0.0,) * 7):
    outputs = torch.full((len(returns),), value, dtype=torch.float64, requires_grad=True)
    one = row(returns=returns, old_values=[0.0] * len(returns), vf=[1 / len(returns)] * len(returns))
    loss, _ = critic_objective(batch_of([one], outputs), spec)
    return float(loss.detach()), float(torch.autograd.grad(loss, outputs)[0].sum())


def test_ten_returns_with_three_1s():
    """Squared error: .21 at .3 and .30 at .6. Cross-entropy: .610864 at .3, and .794651 at .6."""
    squared, crossed = CriticSpec(clip=0.0), CriticSpec(kind="yes", clip=0.0, loss="bce")
    assert loss_at(0.3, squared) == pytest.approx((0.21, 0.0))
    assert loss_at(0.6, squared)[0] == pytest.approx(0.30)
    assert loss_at(0.3, crossed) == pytest.approx((-(0.3 * math.log(0.3) + 0.7 * math.log(0.7)), 0.0))
    assert loss_at(0.6, crossed)[0] == pytest.approx(-(0.3 * math.log(0.6) + 0.7 * math.log(0.4)))


def test_returns_on_another_scale_cost_the_same():
    """From -1 to 3, the mean of three 3s and seven -1s is .2, and P is .3 there."""
    spec = CriticSpec(kind="yes", clip=0.0, loss="bce", low=-1.0, high=3.0)
    loss, slope = loss_at(0.2, spec, (3.0,) * 3 + (-1.0,) * 7)
    assert loss == pytest.approx(0.610864, abs=1e-6)
    assert slope == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("logit", [12.0, 30.0])
def test_a_sure_and_wrong_probability_still_feels_the_cross_entropy(logit):
    """Slope in the logit: p - q, which is 1 here; that of the squared error has vanished."""
    z = torch.tensor([logit], dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(1, dtype=torch.float64)
    (slope,) = torch.autograd.grad(bernoulli_loss(z.sigmoid(), nothing, nothing, 0.0).sum(), z)
    assert slope.item() == pytest.approx(1.0, abs=1e-3)
    (squared,) = torch.autograd.grad((z.sigmoid() ** 2).sum(), z)
    assert squared.item() < 1.3e-5


def test_the_clip_holds_a_probability_near_its_old_value():
    p, old = torch.tensor([0.9]), torch.tensor([0.5])
    loss = bernoulli_loss(p, torch.tensor([1.0]), old, 0.2)
    assert loss.item() == pytest.approx(-math.log(0.7))  # that of .7, which is more than that of .9
    assert bernoulli_loss(p, torch.tensor([0.0]), old, 0.2).item() == pytest.approx(-math.log(0.1), abs=1e-6)


@pytest.mark.parametrize(("value", "returns"), [(1.2, [1.0]), (0.5, [1.5]), (0.5, [-0.1])])
def test_what_is_no_probability_is_refused(value, returns):
    with pytest.raises(ConfigError, match=r"expected \[0, 1\].*critic.loss to 'mse'"):
        loss_at(value, CriticSpec(kind="yes", loss="bce"), returns)


@pytest.mark.parametrize("full", [False, True])
def test_the_yes_objective_by_hand(full):
    """p(yes) .3 and p(no) .1 of the vocabulary: P .75, mass .4; target .5."""
    logit, mass = math.log(3.0), math.log(0.4)
    outputs = torch.tensor([[logit, mass]], dtype=torch.float64, requires_grad=True)
    loss, sums = yes_objective(batch_of([row(returns=[0.5], vf=[2.0])], outputs), full=full)
    restricted = -0.5 * math.log(0.75) - 0.5 * math.log(0.25)
    over_all = -0.5 * math.log(0.3) - 0.5 * math.log(0.1)
    assert loss.item() == pytest.approx(2.0 * (over_all if full else restricted))
    (slope,) = torch.autograd.grad(loss, outputs)
    assert slope.tolist() == [pytest.approx([2.0 * (0.75 - 0.5), -2.0 if full else 0.0])]
    assert read(sums) == pytest.approx({"nll": restricted, "brier": 0.0625, "yesno_mass": 0.4, "yesno_mass/min": 0.4})


def test_a_soft_target_is_not_cut_to_a_whole_number():
    outputs = torch.tensor([[0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    loss, _ = yes_objective(batch_of([row(returns=[0.75], vf=[1.0])], outputs), full=False)
    assert torch.autograd.grad(loss, outputs)[0][0, 0].item() == pytest.approx(-0.25)  # .5 - .75; cut to 0 it were .5


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"loss": "bce"}, "'bce' is for probabilities"),
        ({"kind": "separate", "loss": "bce"}, "'bce' is for probabilities"),
        ({"low": 1.0}, "least and the most return"),
        ({"question": "Well?"}, "is for a critic that is asked"),
        ({"kind": "maybe"}, "valid: head, separate, lora, yes"),
    ],
)
def test_critics_that_cannot_be(spec, said):
    with pytest.raises(ConfigError, match=said):
        parts("ppo", critic=spec)


def test_the_bare_word_of_yaml_is_a_kind():
    assert parts("ppo", critic={"kind": True}).critic.kind == "yes"
    assert parts("ppo", critic={"kind": "separate", "base": "prm", "loss": "bce"}).critic.loss == "bce"


def test_plain_explained_variance_knows_nothing_of_the_values():
    """Returns 1, 1, 0, 0 at both tokens. Values equal to them explain all; learnt returns would hold values, too."""
    algorithm = parts("ppo", kl={"coef": 0.0}, credit={"lam": 0.0})
    right = [scored(1.0, (1, 2), values=[1.0, 1.0]), scored(0.0, (1, 2), values=[0.0, 0.0])]
    assert plain_explained_variance(right, algorithm, STATE, alone) == pytest.approx(1.0)
    constant = [scored(r, (1, 2), values=[0.4, 0.4]) for r in (1.0, 0.0)]
    assert plain_explained_variance(constant, algorithm, STATE, alone) == pytest.approx(0.0, abs=1e-6)
    # Values 1, 0 and 0, 1 against 1, 1 and 0, 0: errors 0, 1, 0, -1 have variance .5, twice that of the returns.
    wrong = [scored(1.0, (1, 2), values=[1.0, 0.0]), scored(0.0, (1, 2), values=[0.0, 1.0])]
    assert plain_explained_variance(wrong, algorithm, STATE, alone) == pytest.approx(1 - 0.5 / 0.25)


def test_drift_is_the_mean_distance_from_the_first_values():
    class Moved:
        def values(self, rows):
            return [torch.where(torch.tensor(r.mask), 0.75, 0.0) for r in rows]

    algorithm = parts("ppo", kl={"coef": 0.0})
    items = [
        scored(1.0, (1, 2, 3), values=[0.5, 9.0, 1.0], mask=(True, False, True)),
        scored(1.0, (1,), values=[0.25]),
    ]
    probe = Probe.of(items, algorithm)
    assert probe.start.tolist() == [0.5, 1.0, 0.25]
    assert [r.mask for r in probe.rows] == [(True, False, True), (True,)]
    assert probe.drift(Moved(), alone) == pytest.approx((0.25 + 0.25 + 0.5) / 3)


def test_the_last_reward_is_paid_at_the_last_sampled_token_and_nowhere_after():
    """Three observation tokens follow it, as padding would; a reward there would reach no decision."""
    algorithm = parts("ppo", kl={"coef": 0.0}, credit={"lam": 1.0, "gamma": 0.5, "scale": "none"})
    mask = (True, False, True, False, False, False)
    item = scored(1.0, (1, 2, 3, 4, 0, 0), mask=mask, values=[0.0] * 6)
    found = credit([item], algorithm, STATE, alone)
    assert found.advantages[0].tolist() == [0.5, 0.0, 1.0, 0.0, 0.0, 0.0]
    (learnt,) = value_rows([item], found, algorithm, alone)
    assert learnt.mask == mask
    assert learnt.streams["returns"].tolist() == [0.5, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("between", [0.0, 7.0, math.nan])
def test_advantages_go_through_observations_untouched(between):
    """Mask 1 0 1, reward 1 at the end, values .5, anything, .5, lambda .5: .25 and .5."""
    algorithm = parts("ppo", kl={"coef": 0.0}, credit={"lam": 0.5, "scale": "none"})
    item = scored(1.0, (1, 2, 3), mask=(True, False, True), values=[0.5, between, 0.5])
    assert credit([item], algorithm, STATE, alone).advantages[0].tolist() == [0.25, 0.0, 0.5]
