"""What the optimizer learns in expectation is the gradient of the objective it claims, summed over all that can happen.

Rollouts go through the optimizer as they always do. Where an estimate is unbiased it equals autograd of the objective;
where it is biased, the bias is a formula, or its measured size stands here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from exact import (
    JUDGED,
    OWN,
    PROMPT,
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
    kl_of_sequences,
    same,
    scores,
    totals,
)

from prefrl.policy.algorithms import ALGORITHMS, resolve

FIXED, ENDING, ANSWERING = WORLDS.values()
TURNS = World(2, 4, turn=2)  # two turns of two actions, an observation between them
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
every_reward = pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)


def wins(some):
    """(E, E): 1 where the first episode is paid more than the second one, -1 where less."""
    paid = totals(some)
    return (paid[:, None] - paid[None, :]).sign()


def lengths(world):
    return torch.tensor([float(sum(e.mask)) for e in world.episodes], dtype=torch.float64)


# On policy, unbiased.


@every_world
@pytest.mark.parametrize(
    ("name", "of_n"), [("reinforce", True), ("rloo", False), ("dr_grpo", True), ("full_ratio", False)]
)
def test_baselines(world, name, of_n):
    # A mean that a rollout is part of takes 1/n of its own reward away: the gradient is (n - 1)/n of the true one.
    table, _, _ = world.tables()
    some = scores(world)
    scale = (0.5 if of_n else 1.0) / (world.steps if ALGORITHMS[name].reduction == "constant" else 1.0)
    got = expected_ascent(world, table, {"name": name, "kl": {"coef": 0.0}}, some)
    same(got, scale * gradient(expected(world, table, totals(some)), table))


@pytest.mark.parametrize(("name", "scale"), [("reinforce", 2 / 3), ("rloo", 1.0), ("dr_grpo", 2 / 3 / 2)])
def test_baselines_of_three(name, scale):
    world = World(2, 2)
    table, some = world.table(0), scores(world)
    got = expected_ascent(world, table, {"name": name, "kl": {"coef": 0.0}}, some, size=3)
    same(got, scale * gradient(expected(world, table, totals(some)), table))


@every_world
@every_reward
def test_rewards_to_go(world, rewards):
    table, some = world.table(0), scores(world, **rewards)
    same(expected_ascent(world, table, OWN, some, size=1), gradient(expected(world, table, totals(some)), table))


@every_world
@every_reward
@pytest.mark.parametrize(("lam", "exact"), [(1.0, False), (0.6, True), (0.0, True)])
def test_critic(world, rewards, lam, exact):
    table, some = world.table(0), scores(world, **rewards)
    values = exact_values(world, table, some) if exact else {h: float(i % 3) for i, h in enumerate(world.places)}
    spec = JUDGED | {"credit": {"scale": "none", "lam": lam}}
    got = expected_ascent(world, table, spec, some, size=1, critic=TabularCritic(values))
    same(got, gradient(expected(world, table, totals(some)), table))


def test_a_wrong_critic_at_lambda_below_one_is_biased():
    table, some = ENDING.table(0), scores(ENDING)
    wrong = TabularCritic({h: float(i % 3) for i, h in enumerate(ENDING.places)})
    true = gradient(expected(ENDING, table, totals(some)), table)
    spec = JUDGED | {"credit": {"scale": "none", "lam": 0.6}}
    got = expected_ascent(ENDING, table, spec, some, size=1, critic=wrong)
    assert cosine(got, true) == pytest.approx(0.340, abs=1e-3)


@every_reward
@pytest.mark.parametrize(
    ("baseline", "lam", "exact"), [("none", 1.0, False), ("critic", 1.0, False), ("critic", 0.6, True)]
)
def test_turns(rewards, baseline, lam, exact):
    table, some = TURNS.table(0), scores(TURNS, **rewards)
    values = exact_values(TURNS, table, some) if exact else {h: float(i % 3) for i, h in enumerate(TURNS.places)}
    spec = JUDGED | {"credit": {"baseline": baseline, "scale": "none", "lam": lam, "level": "turn"}}
    got = expected_ascent(TURNS, table, spec, some, size=1, critic=TabularCritic(values))
    same(got, gradient(expected(TURNS, table, totals(some)), table))


@pytest.mark.parametrize("final", [False, True])
def test_what_more_was_to_come_is_what_the_critic_says(final):
    # Paid by steps alone, an episode that was cut off goes on; a sequence-level score is the last word.
    table, some = ENDING.table(0), scores(ENDING, final=final, steps=True)
    ends = {e.tokens: 0.5 + i for i, e in enumerate(ENDING.episodes)}
    later = [0.0 if final or e.ended else ends[e.tokens] for e in ENDING.episodes]
    spec = JUDGED | {"credit": {"scale": "none", "lam": 1.0}}
    got = expected_ascent(ENDING, table, spec, some, size=1, critic=TabularCritic(ends))
    whole = totals(some) + torch.tensor(later, dtype=torch.float64)
    same(got, gradient(expected(ENDING, table, whole), table))


# Step rewards that are compared with others'.


@every_reward
def test_step_rewards_in_episodes_of_one_length(rewards):
    table, some = FIXED.table(0), scores(FIXED, **rewards)
    true = gradient(expected(FIXED, table, totals(some)), table)
    same(expected_ascent(FIXED, table, {"name": "rloo", "kl": {"coef": 0.0}}, some), true)


@pytest.mark.parametrize(
    ("world", "baseline", "measured"),
    [
        (ENDING, "leave_one_out", -0.414),
        (ENDING, "ema", 0.654),
        (ANSWERING, "leave_one_out", -0.695),
        (ANSWERING, "ema", 0.584),
    ],
)
def test_a_baseline_of_step_rewards_is_a_price_on_steps(world, baseline, measured):
    # Each further step is paid less the baseline: with b its mean, what is learnt is E[R] - b E[number of steps].
    # Where rewards of steps are positive and the policy chooses how many there are, that makes episodes short: it may
    # well point away from the gradient of the reward. Rewards to go, and a critic, have no such price.
    table, some = world.table(0), scores(world, final=False, steps=True, low=0.0)
    counts = torch.tensor([float(len(s.steps)) for s in some], dtype=torch.float64)
    price = float(expected(world, table.detach(), totals(some) / counts)) if baseline == "leave_one_out" else 0.3
    spec = {"name": "rloo", "kl": {"coef": 0.0}, "credit": {"baseline": baseline}}
    got = expected_ascent(world, table, spec, some, means=(math.nan, 0.3))
    same(got, gradient(expected(world, table, totals(some) - price * counts), table))
    true = gradient(expected(world, table, totals(some)), table)
    assert cosine(got, true) == pytest.approx(measured, abs=1e-3)


@every_world
def test_running_mean(world):
    table, some = world.table(0), scores(world)
    spec = {"name": "reinforce", "credit": {"baseline": "ema"}}
    true = gradient(expected(world, table, totals(some)), table)
    same(expected_ascent(world, table, spec, some, means=(0.7, math.nan)), true)
    same(expected_ascent(world, table, spec, some), 0.5 * true)  # before there is one: the batch's own


# KL, entropy, observations.


@every_world
@pytest.mark.parametrize(("name", "changes"), [("rloo", {}), ("reinforce_pp", {"credit": {"scale": "none"}})])
def test_kl_in_the_reward_is_that_of_whole_episodes(world, name, changes):
    table, _, reference = world.tables()
    some, kl = scores(world), {"coef": 0.3}
    spec = {"name": name, "kl": kl, "reduction": "sequence_sum", **changes}
    true = expected(world, table, totals(some)) - 0.3 * kl_of_sequences(world, table, reference)
    same(expected_ascent(world, table, spec, some, reference=reference), gradient(true, table))


@every_world
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_in_the_loss_is_that_of_actions_at_the_histories_seen(world, estimator):
    table, _, reference = world.tables()
    some = [replace(score, value=0.0) for score in scores(world)]
    spec = {"name": "dr_grpo", "kl": {"coef": 0.3, "estimator": estimator}, "reduction": "sequence_sum"}
    got = expected_ascent(world, table, spec, some, reference=reference, size=1)
    same(got, gradient(-0.3 * at_visits(world, table, kl_of_actions(table, reference)), table))


@every_world
def test_entropy(world):
    table, some = world.table(0), [replace(score, value=0.0) for score in scores(world)]
    spec = {"name": "dr_grpo", "entropy": 0.3, "reduction": "sequence_sum"}
    logps = table.log_softmax(-1)
    true = 0.3 * at_visits(world, table, -(logps.exp() * logps).sum(-1))
    same(expected_ascent(world, table, spec, some, size=1), gradient(true, table))


def test_observations_are_learnt_by_cross_entropy_alone():
    table, some = TURNS.table(0), scores(TURNS)
    answers = [(e.tokens, e.mask.index(False)) for e in TURNS.episodes]  # one in each episode
    seen = torch.stack([TURNS.logps(table, tokens)[i] for tokens, i in answers])
    true = expected(TURNS, table, totals(some)) + 0.3 * (TURNS.chances(table).detach() * seen).sum()
    same(expected_ascent(TURNS, table, OWN | {"echo": 0.3}, some, size=1), gradient(true, table))


# On policy, biased by design.


@pytest.mark.parametrize("name", ["grpo", "dapo", "cispo", "gspo", "ctpo", "reinforce_pp"])
def test_a_spread_of_two_rewards_leaves_only_who_won(name):
    # Divided by their standard deviation, the advantages of two are 1 and -1 however much the rewards differ: what
    # climbs is the chance to beat another sample. That is not the expected reward, and here this far from it.
    table, some = FIXED.table(0), scores(FIXED)
    spec = {"name": name, "kl": {"coef": 0.0}, "overlong": {"rule": "keep"}}
    got = expected_ascent(FIXED, table, spec, some)
    better = wins(some) @ FIXED.chances(table).detach()
    same(got, gradient(expected(FIXED, table, better), table) / FIXED.steps)
    true = gradient(expected(FIXED, table, totals(some)), table)
    assert cosine(got, true) == pytest.approx(0.974, abs=1e-3)


@pytest.mark.parametrize(
    ("reduction", "towards_longer", "angle"),
    [("sequence_mean", 0.189, 0.977), ("token_mean", 0.069, 0.996), ("constant", -0.025, 1.0)],
)
def test_length_bias(reduction, towards_longer, angle):
    # Divided by its own length, a long failure is blamed less a token than a short one: failures become longer than
    # by the true gradient. The token mean of a batch does the same less; a constant does not.
    table, some = ENDING.table(0), [replace(s, value=float(i == 1)) for i, s in enumerate(scores(ENDING))]
    failed = totals(some) == 0
    spec = {"name": "dr_grpo", "reduction": reduction}
    got = expected_ascent(ENDING, table, spec, some)
    chances = ENDING.chances(table) * failed
    longer = gradient((chances * lengths(ENDING)).sum() / chances.sum(), table)
    true = gradient(expected(ENDING, table, totals(some)), table)
    assert cosine(true, longer) == pytest.approx(-0.025, abs=1e-3)
    assert cosine(got, longer) == pytest.approx(towards_longer, abs=1e-3)
    assert cosine(got, true) == pytest.approx(angle, abs=1e-3)


# Distillation, selection, pairs.


@every_world
@pytest.mark.parametrize("form", ["full", "sampled"])
@pytest.mark.parametrize("privileged", [False, True])
def test_distillation(world, form, privileged):
    # The full form is exact at each history, the sampled one in expectation over actions.
    table, other, teacher = world.tables()
    shown = (*PROMPT, 7)
    spec = {"name": "opsd" if privileged else "opd", "distill": {"form": form}, "reduction": "sequence_sum"}
    got = expected_ascent(
        world,
        table,
        spec,
        [replace(score, value=0.0) for score in scores(world)],
        size=1,
        teachers={shown: teacher, PROMPT: other} if privileged else {PROMPT: teacher, shown: other},
        teacher_prompt=lambda _: shown,
    )
    same(got, gradient(-at_visits(world, table, kl_of_actions(table, teacher)), table))


@pytest.mark.parametrize("form", ["full", "sampled"])
def test_distillation_beside_a_reward(form):
    table, _, teacher = FIXED.tables()
    some = scores(FIXED)
    spec = {
        "name": "opd",
        "distill": {"coef": 0.3, "form": form},
        "credit": {"baseline": "leave_one_out"},
        "group_size": 2,
    }
    true = expected(FIXED, table, totals(some)) - 0.3 * at_visits(FIXED, table, kl_of_actions(table, teacher))
    got = expected_ascent(FIXED, table, spec, some, teachers={PROMPT: teacher})
    same(got, gradient(true, table) / FIXED.steps)


@pytest.mark.parametrize("form", ["full", "sampled"])
def test_nothing_is_learnt_from_a_teacher_that_is_the_policy(form):
    table, some = ENDING.table(0), [replace(score, value=0.0) for score in scores(ENDING)]
    spec = {"name": "opd", "distill": {"form": form}}
    got = expected_ascent(ENDING, table, spec, some, teachers={PROMPT: table.detach()})
    assert float(got.abs().max()) < 1e-8


def test_learning_what_is_accepted_is_the_policy_gradient_of_acceptance():
    # Of two samples the mean over those accepted is learnt: (1 - (1 - p)^2) / p = 2 - p times as much as of one.
    table, some = FIXED.table(0), scores(FIXED)
    accepted = (totals(some) >= 0.5).double()
    p = float(expected(FIXED, table.detach(), accepted))
    assert 0.2 < p < 0.8
    true = gradient(expected(FIXED, table, accepted), table) / FIXED.steps
    spec = {"name": "rejection", "select": {"threshold": 0.5}}
    same(expected_ascent(FIXED, table, spec, some, size=1), true)
    same(expected_ascent(FIXED, table, spec, some, size=2), (2 - p) * true)


def test_what_is_accepted_twice_is_learnt_once():
    world = World(2, 2)
    table, some = world.table(0), scores(world)
    worst = min(range(4), key=lambda i: some[i].value)
    good, threshold = set(range(4)) - {worst}, some[worst].value + 1e-3
    of_groups = []
    for group in product(range(4), repeat=3):
        learnt = [world.likelihoods(table)[i] for i in good & set(group)]
        chance = world.chances(table).detach()[list(group)].prod()
        of_groups += [chance * torch.stack(learnt).mean() / world.steps] if learnt else []
    spec = {"name": "rejection", "select": {"threshold": threshold}}
    same(expected_ascent(world, table, spec, some, size=3), gradient(torch.stack(of_groups).sum(), table))


def test_the_best_of_two_is_learnt_as_the_winner_of_two():
    table, some = FIXED.table(0), scores(FIXED)
    better = wins(some) @ FIXED.chances(table).detach()
    got = expected_ascent(FIXED, table, {"name": "rejection", "select": {"keep": "best"}}, some)
    same(got, gradient(expected(FIXED, table, better), table) / FIXED.steps)


def surplus(world, table, tokens, length, weight):
    """log P of an episode, its actions past the first `length` weighed."""
    acted = world.acted(table, tokens)
    place = torch.tensor(world.episodes[world.index[tokens]].mask).cumsum(0)
    return torch.where(place <= length, acted, weight * acted).sum()


def worth(world, table, reference, spec):
    """(E, E): implicit score of the first episode in a pair with the second one."""
    size = lengths(world)

    def one(i, j):
        tokens, shorter = world.episodes[i].tokens, min(size[i], size[j])
        logp = surplus(world, table, tokens, shorter, spec.ld_alpha)
        if spec.score == "log_ratio":
            return logp - surplus(world, reference, tokens, shorter, spec.ld_alpha)
        logp = logp / size[i] if spec.average else logp
        return logp - (1 - logp.exp()).log() if spec.score == "log_odds" else logp

    every = range(len(world.episodes))
    return torch.stack([torch.stack([one(i, j) for j in every]) for i in every])


def loss_of(spec, score):
    """(E, E): what a winner (row) and a loser (column) cost."""
    m, p = score - score.T, 1.0 - spec.label_smoothing
    z = spec.beta * m
    if spec.loss == "squared":
        return (m - (2 * p - 1) / (2 * spec.beta)) ** 2
    if spec.loss == "hinge":
        return p * (1 - z).clamp(min=0) + (1 - p) * (1 + z).clamp(min=0)
    if spec.loss == "prospect":  # one prompt, so no other to take completions from: z0 is 0
        good, bad = torch.sigmoid(-spec.beta * score), torch.sigmoid(spec.beta * score.T)
        return (good + bad) / 2
    return p * (1 + (spec.gamma - z).exp()).log() + (1 - p) * (1 + (spec.gamma + z).exp()).log()


def of_pairs(world, table, reference, some, spec):
    """The loss of the winner and the loser of two samples, expected; how likely they are is held."""
    chances = world.chances(table).detach()
    pairs = 2 * chances[:, None] * chances[None, :] * (wins(some) > 0)  # either may be drawn first
    nll = -(world.likelihoods(table) / lengths(world))[:, None]
    return (pairs * (spec.coef * loss_of(spec, worth(world, table, reference, spec)) + spec.sft * nll)).sum()


PAIRS = {
    **{name: {"name": name} for name, algorithm in ALGORITHMS.items() if algorithm.pairs is not None},
    "label smoothing": {"name": "dpo", "pairs": {"label_smoothing": 0.1}},
    "hinge": {"name": "dpo", "pairs": {"loss": "hinge"}},
    "margin of wrong labels": {"name": "simpo", "pairs": {"label_smoothing": 0.1}},
    "a third of the surplus": {"name": "cpo", "pairs": {"ld_alpha": 0.3, "sft": 0.2}},
}


@every_world
@pytest.mark.parametrize("name", PAIRS)
def test_pairs(world, name):
    table, _, reference = world.tables()
    some = scores(world)
    got = expected_ascent(world, table, PAIRS[name], some, reference=reference)
    same(got, gradient(-of_pairs(world, table, reference, some, resolve(PAIRS[name]).pairs), table))


# The table of algorithms as it stands.

# Cosine between what a batch of two teaches in expectation, and the gradient of the objective with all its terms.
# Below 1: whitening or a spread of two rewards, and means over tokens where lengths differ.
AS_IT_STANDS = {
    "reinforce": 1.0,
    "reinforce_pp": 0.741,
    "rloo": 1.0,
    "ppo": 0.668,
    "grpo": 0.897,
    "dr_grpo": 1.0,
    "dapo": 0.966,
    "cispo": 0.9745,
    "gspo": 0.893,
    "ctpo": 0.9745,
    "full_ratio": 1.0,
    "rejection": 0.911,
    "opd": 0.9995,
    "opsd": 0.9995,
    **dict.fromkeys(("dpo", "ipo", "slic", "kto", "orpo", "simpo", "cpo", "ld_dpo"), 1.0),
}


def objective(world, table, algorithm, some, other):
    """What an algorithm's parts say that it climbs; `other` is its reference and its teacher."""
    if algorithm.pairs is not None:
        return -of_pairs(world, table, other, some, algorithm.pairs)
    if algorithm.select is not None:
        return expected(world, table, (totals(some) >= algorithm.select.threshold).double())
    paid = totals(some)
    if algorithm.overlong.rule == "soft":  # of three tokens those after the 2.4th
        paid = paid - (lengths(world) == 3).double()
    near = at_visits(world, table, kl_of_actions(table, other))
    kl = kl_of_sequences(world, table, other) if algorithm.kl.place == "reward" else near
    return expected(world, table, paid) - algorithm.kl.coef * kl - algorithm.distill.coef * near


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_table_as_it_stands(name):
    table, _, other = ENDING.tables()
    some = [replace(score, value=0.0) if ALGORITHMS[name].distill.coef else score for score in scores(ENDING)]
    if ALGORITHMS[name].select is not None:
        some = [replace(score, value=float(score.value > 0.0)) for score in some]
    critic = TabularCritic({h: float(i % 3) for i, h in enumerate(ENDING.places)})
    got = expected_ascent(
        ENDING,
        table,
        name,
        some,
        critic=critic,
        reference=other,
        teachers={PROMPT: other},
        teacher_prompt=lambda _: PROMPT,
    )
    true = gradient(objective(ENDING, table, ALGORITHMS[name], some, other), table)
    assert cosine(got, true) == pytest.approx(AS_IT_STANDS[name], abs=5e-4)
