"""Rewards learnt from demonstrations against an enumerated truth: 121 completions of two prompts."""

from __future__ import annotations

import pytest
import torch
from exact_text import PROMPTS, Table, counting_body, engine_of, language, table_of, world

from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.irl_text import Interleaved
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.text import TextInverse, TextNetSpec
from prefrl.rewards.inverse.text_nets import body_of

DRAWS = 1500


def source_of(truth, method, *, draws=DRAWS, body=None, fit=None, **net):
    return TextInverse(
        truth.demonstrations(draws),
        method=method,
        beta=truth.beta,
        net=TextNetSpec(**net),
        fit=fit or Fit(steps=10, lr=0.03, batch_size=0),
        body=body or counting_body(),
    )


def learnt(source, engine):
    """u (2, 121) of all completions."""
    rows = engine.rows()
    plain, _ = source.model.rewards(rows, [row.completion_ids[-1] == 0 for row in rows])
    return torch.stack([u.sum() for u in plain]).reshape(len(PROMPTS), -1)


@pytest.fixture(scope="module")
def truth():
    return world(table_of(engine_of(language())))


@pytest.mark.parametrize(
    ("method", "options"),
    [("airl", {}), ("airl", {"offset": "estimated"}), ("gcl", {})],
    ids=["airl", "airl-estimated", "gcl"],
)
def test_reward_and_policy_are_recovered(method, options, truth):
    engine = Table(truth.reference)
    source = source_of(truth, method, **options)
    source.attach(engine)
    start = truth.divergence(engine.policy)
    for _ in range(18):
        source.update(engine.sample(DRAWS))
        # Half a step towards ref exp(u), the best policy for the reward as it is.
        engine.move(0.5 * engine.policy + 0.5 * (truth.reference + learnt(source, engine)))
    found = truth.beta * learnt(source, engine)
    assert start > 0.25
    assert truth.divergence(engine.policy) < 0.01
    assert truth.agreement(found) > 0.99
    assert truth.spread(found - truth.reward) < 0.06  # its size too, not its order alone
    assert truth.spread(truth.reward) > 0.5


def test_the_learnt_offset_is_log_z(truth):
    engine = Table(truth.reference)
    source = source_of(truth, "airl")
    source.attach(engine)
    for _ in range(30):
        source.update(engine.sample(DRAWS))
        engine.move(0.5 * engine.policy + 0.5 * (truth.reference + learnt(source, engine)))
    u = learnt(source, engine)
    log_z = (truth.reference + u).logsumexp(-1)
    plain, shaped = source.model.rewards(engine.rows()[::121], [True, True])
    offsets = torch.cat(plain) - torch.cat(shaped)
    torch.testing.assert_close(offsets, log_z, atol=0.05, rtol=0)


def test_a_plain_discriminator_leaves_no_reward(truth):
    """Where the policy is the demonstrator nothing can be told apart: GAIL forgets what it knew, AIRL has learnt it."""
    spreads, agreements = {}, {}
    for method in ("gail", "airl"):
        engine = Table(truth.reference)
        source = source_of(truth, method)
        source.attach(engine)
        source.update(engine.sample(DRAWS))  # both know something now
        engine.move(truth.expert)
        for _ in range(18):
            source.update(engine.sample(DRAWS))
        found = truth.beta * learnt(source, engine)
        spreads[method], agreements[method] = truth.spread(found), truth.agreement(found)
    assert spreads["gail"] < 0.02
    assert spreads["airl"] == pytest.approx(truth.spread(truth.reward), abs=0.05)
    assert agreements["airl"] > 0.99


def test_earlier_rounds_stay_valid_for_airl_and_mislead_gail(truth):
    """Rounds of the reference's samples, looked at once the policy has become the demonstrator."""
    spreads = {}
    for method in ("gail", "airl"):
        engine = Table(truth.reference)
        fit = Fit(steps=10, lr=0.03, batch_size=0, buffer=6, fusion=0.8)
        source = source_of(truth, method, fit=fit)
        source.attach(engine)
        for _ in range(5):
            source.update(engine.sample(DRAWS))
        engine.move(truth.expert)
        for _ in range(5):
            source.update(engine.sample(DRAWS))
        spreads[method] = truth.spread(truth.beta * learnt(source, engine) - truth.reward * (method == "airl"))
    assert spreads["airl"] < 0.08  # the distance from the true reward
    assert spreads["gail"] > 0.15  # a taste that nobody demonstrated, from policies that are gone


@pytest.mark.slow
def test_transformers_recover_the_reward(truth):
    """The same with a transformer as policy, sampled and improved by RLOO, and another one trained as the reward."""
    engine = engine_of(language())
    table = Table(truth.reference)
    fit = Fit(steps=3, lr=5e-3, batch_size=0, buffer=4, fusion=0.5)
    source = source_of(truth, "airl", draws=300, body=body_of(language(seed=7)), fit=fit)
    source.attach(engine)
    algorithm = resolve({"name": "rloo", "kl": {"coef": truth.beta}, "group_size": 32})
    optimizer = PolicyOptimizer(engine, Interleaved(source), algorithm)
    start = truth.divergence(table_of(engine, "policy"))
    for step in range(30):
        optimizer.step(PROMPTS, seed=step)
    assert truth.divergence(table_of(engine, "policy")) < 0.5 * start
    assert truth.agreement(learnt(source, table)) > 0.95
