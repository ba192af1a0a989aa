"""Samples of another policy: which importance ratio gives the true gradient, and by how much others miss it.

The learner and the sampler are tables of independent random logits: far apart, so that no bias hides.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from exact import (
    JUDGED,
    OWN,
    REWARDS,
    WORLDS,
    TabularCritic,
    World,
    at_visits,
    cosine,
    exact_values,
    expected,
    expected_ascent,
    gradient,
    kl_of_actions,
    same,
    scores,
    totals,
)

FIXED, ENDING, ANSWERING = WORLDS.values()
BANDIT = World(3, 1)
RATIOS = ("token", "cumulative", "sequence", "sequence_mean")
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
every_reward = pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)


def unclipped(spec, ratio, **more):
    return spec | {"ratio": ratio, "clip": {"kind": "none"}} | more


@every_world
def test_full_ratio(world):
    table, behaviour, _ = world.tables()
    some = scores(world)
    got = expected_ascent(world, table, "full_ratio", some, behaviour=behaviour)
    same(got, gradient(expected(world, table, totals(some)), table))


@every_world
@every_reward
def test_the_whole_ratio_with_rewards_to_go(world, rewards):
    table, behaviour, _ = world.tables()
    some = scores(world, **rewards)
    got = expected_ascent(world, table, unclipped(OWN, "sequence"), some, behaviour=behaviour, size=1)
    same(got, gradient(expected(world, table, totals(some)), table))


@every_world
@every_reward
def test_the_cumulative_ratio_with_one_step_advantages_of_a_perfect_critic(world, rewards):
    # The ratio up to a token makes its history and action the learner's. What comes later is the sampler's, and must
    # not enter the advantage: a critic of the learner, at lambda 0, says what is to come.
    table, behaviour, _ = world.tables()
    some = scores(world, **rewards)
    spec = unclipped(JUDGED, "cumulative", credit={"scale": "none", "lam": 0.0})
    critic = TabularCritic(exact_values(world, table, some))
    got = expected_ascent(world, table, spec, some, behaviour=behaviour, size=1, critic=critic)
    same(got, gradient(expected(world, table, totals(some)), table))


def continued_by(world, table, behaviour, some):
    """E of each action's rewards to go: history and action by the learner, all that follows by the sampler."""
    terms = []
    for episode, score in zip(world.episodes, some, strict=True):
        mine, theirs = world.acted(table, episode.tokens), world.acted(behaviour, episode.tokens)
        for i, acts in enumerate(episode.mask):
            later = (score.value or 0.0) + sum(reward for token, reward in score.steps if token >= i)
            so_far, after = mine[:i].sum().detach(), theirs[i + 1 :].sum()
            terms.append(acts * episode.chance * later * (so_far + mine[i] + after).exp())
    return torch.stack(terms).sum()


@pytest.mark.parametrize(
    ("world", "rewards", "measured"),
    [
        (FIXED, {}, 0.999),
        (ENDING, {}, 0.906),
        (ENDING, {"steps": True}, 0.579),
        (ANSWERING, {"steps": True, "final": False}, 0.865),
    ],
)
def test_the_cumulative_ratio_with_rewards_to_go_is_the_learner_continued_by_the_sampler(world, rewards, measured):
    table, behaviour, _ = world.tables()
    some = scores(world, 3, **rewards)
    got = expected_ascent(world, table, unclipped(OWN, "cumulative"), some, behaviour=behaviour, size=1)
    same(got, gradient(continued_by(world, table, behaviour, some), table))
    true = gradient(expected(world, table, totals(some)), table)
    assert cosine(got, true) == pytest.approx(measured, abs=1e-3)


@pytest.mark.parametrize("ratio", RATIOS)
def test_on_one_action_all_ratios_are_right(ratio):
    table, behaviour, _ = BANDIT.tables()
    some = scores(BANDIT)
    true = gradient(expected(BANDIT, table, totals(some)), table)
    same(expected_ascent(BANDIT, table, unclipped(OWN, ratio), some, behaviour=behaviour, size=1), true)


# Cosines with the true gradient, and how long the estimate is for one as long as that.
BIASES = {
    ("none", "fixed"): (0.832, 0.807),
    ("none", "ending"): (0.717, 2.852),
    ("token", "fixed"): (0.916, 0.822),
    ("token", "ending"): (0.811, 0.907),
    ("sequence_mean", "fixed"): (0.977, 0.799),
    ("sequence_mean", "ending"): (0.894, 0.966),
}


@pytest.mark.parametrize(("ratio", "where"), BIASES, ids=map(" ".join, BIASES))
def test_biased_ratios(ratio, where):
    # Token ratios leave the histories those of the sampler; GSPO's is a power of the whole ratio, 1/length.
    world = WORLDS[where]
    table, behaviour, _ = world.tables()
    some = scores(world, 3)
    true = gradient(expected(world, table, totals(some)), table)
    got = expected_ascent(world, table, unclipped(OWN, ratio), some, behaviour=behaviour, size=1)
    assert (cosine(got, true), float(got.norm() / true.norm())) == pytest.approx(BIASES[ratio, where], abs=1e-3)


# Cosines of the presets with a ratio as they stand, far from the sampler and near it.
PRESETS = {
    "ppo": [0.439, 0.994],
    "grpo": [0.641, 0.956],
    "dr_grpo": [0.628, 1.0],
    "dapo": [0.632, 0.997],
    "cispo": [0.477, 0.997],
    "gspo": [0.64, 0.571],
    "ctpo": [0.36, 0.998],
    "full_ratio": [1.0, 1.0],
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    # This far from the sampler most tokens are out of bounds, and what is left points elsewhere. One part in fifty of
    # the way from it, the angles are nearly those on policy, but for the bounds of GSPO, which are that narrow.
    far, behaviour, _ = ENDING.tables()
    near = (0.98 * behaviour + 0.02 * far).detach().requires_grad_()
    some = [replace(score, value=float(score.value > 0.0)) for score in scores(ENDING, 3)]
    angles = []
    for table in (far, near):
        spec = {"name": name, "kl": {"coef": 0.0}, "overlong": {"rule": "keep"}}
        critic = TabularCritic(exact_values(ENDING, table, some))
        got = expected_ascent(ENDING, table, spec, some, behaviour=behaviour, critic=critic)
        angles.append(cosine(got, gradient(expected(ENDING, table, totals(some)), table)))
    assert angles == pytest.approx(PRESETS[name], abs=1e-3)


def test_truncated_weights():
    # Weights learner / sampler make a foreign sampler's actions the learner's; the cap bounds them from above.
    table, behaviour, _ = BANDIT.tables()
    some = scores(BANDIT)
    true = gradient(expected(BANDIT, table, totals(some)), table)
    spec = unclipped(OWN, "none")
    same(expected_ascent(BANDIT, table, spec | {"truncate": 1e3}, some, behaviour=behaviour, size=1), true)
    weights = (table.log_softmax(-1) - behaviour.log_softmax(-1)).detach().exp()
    assert float(weights.min()) < 0.9 < 1.1 < float(weights.max())
    capped = expected_ascent(BANDIT, table, spec | {"truncate": 1.0}, some, behaviour=behaviour, size=1)
    shares = torch.minimum(table.detach().log_softmax(-1), behaviour.log_softmax(-1)).exp()[0]
    same(capped, gradient((shares * totals(some) * table.log_softmax(-1)[0]).sum(), table))


@pytest.mark.parametrize("estimator", ["k1", "k3", "k2"])
def test_kl_in_the_loss(estimator):
    # All carry the ratio of the token, so that actions count as the learner's at the sampler's histories.
    table, behaviour, reference = ENDING.tables()
    some = [replace(score, value=0.0) for score in scores(ENDING)]
    spec = {"name": "dr_grpo", "kl": {"coef": 0.3, "estimator": estimator}, "reduction": "sequence_sum"}
    got = expected_ascent(ENDING, table, spec, some, reference=reference, size=1, behaviour=behaviour)
    kl = at_visits(ENDING, behaviour, kl_of_actions(table, reference))
    same(got, gradient(-0.3 * kl, table))
