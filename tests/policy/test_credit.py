from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fakes import alone, parts, scored
from tiny import rollout

from prefrl.policy.credit import CreditState, countable, credit, group_ids, overlong_penalty
from prefrl.policy.parts import OverlongSpec
from prefrl.types import Score, StopReason

SPARSE = (True, False, True)


def advantages(items, algorithm, state=None):
    """Advantages of all rollouts, rounded so that literals compare."""
    found = credit(items, algorithm, state or CreditState(kl_coef=algorithm.kl.coef), alone)
    return [[round(x, 6) for x in a.tolist()] for a in found.advantages]


def estimates(item, **spec):
    """Advantages and returns of one rollout under a critic."""
    algorithm = parts("ppo", credit={"scale": "none", **spec}, kl={"coef": 0.0})
    found = credit([item], algorithm, CreditState(kl_coef=0.0), alone)
    return [[round(x, 6) for x in each[0].tolist()] for each in (found.advantages, found.returns)]


# What counts. ----------------------------------------------------------------------------------------------------


def test_errors_and_rollouts_without_a_sampled_token_do_not_count():
    rollouts = [rollout((1,)), rollout((2,)), rollout((3, 4), mask=(False, False)), rollout(())]
    scores = [Score(value=1.0), Score.failed("no"), Score(value=5.0), Score(value=5.0)]
    assert [s.score.value for s in countable(rollouts, scores, OverlongSpec(), 4)] == [1.0]


@pytest.mark.parametrize(
    ("rule", "wanted"), [("keep", [1.0, 0.75]), ("mask", [1.0]), ("zero", [1.0, 0.0]), ("soft", [1.0, -0.25])]
)
def test_what_a_truncated_rollout_is(rule, wanted):
    rollouts = [rollout((1,)), rollout((1, 2, 3, 4), stop=StopReason.LENGTH)]
    scores = [Score(value=1.0), Score(value=0.5, steps=((0, 0.25),))]
    counted = countable(rollouts, scores, OverlongSpec(rule=rule), 4)
    assert [s.score.total for s in counted] == pytest.approx(wanted)


@pytest.mark.parametrize(("length", "penalty"), [(0, 0.0), (80, 0.0), (85, 0.25), (90, 0.5), (100, 1.0), (130, 1.0)])
def test_the_soft_penalty_rises_over_the_last_share_of_the_budget(length, penalty):
    # Budget 100, buffer 20: (80 - length) / 20 in between.
    assert overlong_penalty(length, 100, OverlongSpec(rule="soft", buffer=0.2)) == pytest.approx(penalty)
    assert overlong_penalty(length, 100, OverlongSpec(rule="soft", penalty=3.0)) == pytest.approx(3 * penalty)


def test_the_soft_penalty_counts_sampled_tokens_and_needs_no_truncation():
    half = rollout((1,) * 12, mask=(True,) * 9 + (False,) * 3)
    (item,) = countable([half], [Score(value=1.0)], OverlongSpec(rule="soft", buffer=0.2), 10)
    assert item.score.value == pytest.approx(0.5)


def test_only_a_rollout_cut_off_without_a_last_word_awaits_more():
    cut = {"stop": StopReason.LENGTH}
    assert scored(None, steps=((0, 1.0),), **cut).awaits
    assert not scored(1.0, steps=((0, 1.0),), **cut).awaits
    assert not scored(0.0, **cut).awaits
    assert not scored(None, steps=((0, 1.0),)).awaits
    assert not scored(None, steps=((0, 1.0),), stop=StopReason.ENVIRONMENT).awaits


def test_group_ids_are_equal_for_equal_names():
    items = [scored(1.0, group=name) for name in ("b", "a", "b", "c")]
    assert group_ids(items).tolist() == [0, 1, 0, 2]


# Comparing rollouts. ---------------------------------------------------------------------------------------------

FOUR = [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("baseline", "scale", "wanted"),
    [
        ("group_mean", "none", [0.75, -0.25, -0.25, -0.25]),
        ("group_mean", "group_std", [1.732051, -0.57735, -0.57735, -0.57735]),
        ("leave_one_out", "none", [1.0, -0.333333, -0.333333, -0.333333]),
        ("batch_mean", "none", [0.75, -0.25, -0.25, -0.25]),
        ("batch_mean", "batch_std", [1.732051, -0.57735, -0.57735, -0.57735]),
        ("ema", "none", [0.8, -0.2, -0.2, -0.2]),
        ("none", "none", [1.0, 0.0, 0.0, 0.0]),
        ("none", "whiten", [1.732051, -0.57735, -0.57735, -0.57735]),
    ],
)
def test_each_baseline_and_scale(baseline, scale, wanted):
    algorithm = parts(credit={"baseline": baseline, "scale": scale}, kl={"coef": 0.0})
    state = CreditState(kl_coef=0.0, means=(0.2, math.nan))
    assert advantages([scored(v) for v in FOUR], algorithm, state) == [[w] for w in wanted]


def test_a_terminal_reward_reaches_every_sampled_token():
    items = [scored(1.0, (1, 2, 3), mask=SPARSE), scored(0.0, (1,))]
    assert advantages(items, parts("dr_grpo")) == [[0.5, 0.0, 0.5], [-0.5]]


def test_unscored_members_leave_the_baseline():
    rollouts = [rollout((i,), group="g") for i in range(4)]
    scores = [Score(value=1.0), Score.failed("gone"), Score(value=0.0), Score(value=0.0)]
    items = countable(rollouts, scores, OverlongSpec(), 4)
    assert advantages(items, parts("dr_grpo")) == [[0.666667], [-0.333333], [-0.333333]]


def test_a_group_left_with_one_scored_member_has_no_advantage():
    rollouts = [rollout((i,), group="g") for i in range(2)] + [rollout((i,), group="h") for i in range(2)]
    scores = [Score(value=7.0), Score.failed("gone"), Score(value=1.0), Score(value=0.0)]
    items = countable(rollouts, scores, OverlongSpec(), 4)
    for name in ("grpo", "dr_grpo", "rloo"):
        assert advantages(items, parts(name, kl={"coef": 0.0}))[0] == [0.0]


def test_steps_are_compared_with_steps_and_values_with_values():
    # Steps 1, 0 and 0, 0 have the mean .25; values 4 and 2 the mean 3. A value stands at the last sampled token.
    items = [
        scored(4.0, (1, 2, 3, 4), steps=((1, 1.0), (3, 0.0))),
        scored(2.0, (1, 2, 3, 4), steps=((1, 0.0), (3, 0.0))),
    ]
    assert advantages(items, parts("dr_grpo")) == [[1.5, 1.5, 0.75, 0.75], [-1.5, -1.5, -1.25, -1.25]]


def test_discount_counts_sampled_tokens():
    items = [scored(1.0, (1, 2, 3, 4), mask=(True, True, False, True)), scored(0.0, (1,))]
    algorithm = parts("dr_grpo", credit={"gamma": 0.5})
    assert advantages(items, algorithm) == [[0.125, 0.25, 0.0, 0.5], [-0.5]]


def test_a_turn_is_one_decision():
    turns = ((0, 2), (3, 5))
    mask = (True, True, False, True, True)
    items = [scored(1.0, (1, 2, 3, 4, 5), mask=mask, turns=turns), scored(0.0, (1,))]
    algorithm = parts("dr_grpo", credit={"gamma": 0.5, "level": "turn"})
    assert advantages(items, algorithm) == [[0.25, 0.25, 0.0, 0.5, 0.5], [-0.5]]


# A rollout's own rewards. ----------------------------------------------------------------------------------------


def own(**spec):
    return parts(credit={"baseline": "none", "scale": "none", **spec}, kl={"coef": 0.0})


def test_reward_to_go_of_a_terminal_reward_is_that_reward():
    assert advantages([scored(1.0, (1, 2, 3), mask=SPARSE)], own()) == [[1.0, 0.0, 1.0]]


def test_reward_to_go_of_steps():
    item = scored(0.5, (1, 2, 3), steps=((0, 1.0), (1, 2.0)))
    assert advantages([item], own()) == [[3.5, 2.5, 0.5]]
    assert advantages([item], own(gamma=0.5)) == [[2.125, 2.25, 0.5]]


def test_whitening_of_returns():
    # Returns 1, 1 and 0: mean 2/3, deviation sqrt(2)/3. The observation keeps 0.
    items = [scored(1.0, (1, 2, 3), mask=SPARSE), scored(0.0, (1,))]
    assert advantages(items, own(scale="whiten")) == [[0.707107, 0.0, 0.707107], [-1.414214]]


# A critic. -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anything", [0.5, 100.0, math.nan])
def test_values_at_observations_do_not_matter(anything):
    item = scored(1.0, (1, 2, 3), mask=SPARSE, values=(0.5, anything, 0.5))
    got, returns = estimates(item, lam=0.5)
    assert got == [0.25, 0.0, 0.5]
    assert returns == [0.75, 0.0, 1.0]


def test_generalized_advantages_of_a_rollout():
    item = scored(0.0, (1, 2, 3), values=(0.3, 0.6, 0.4))
    assert estimates(item, lam=0.0)[0] == [0.3, -0.2, -0.4]
    assert estimates(item, lam=0.5)[0] == [0.1, -0.4, -0.4]
    assert estimates(item, lam=1.0)[0] == [-0.3, -0.6, -0.4]


def test_with_lambda_one_returns_are_the_rewards_to_go():
    item = scored(1.0, (1, 2, 3), steps=((1, 0.5),), values=(0.3, 0.6, 0.4))
    assert estimates(item, lam=1.0) == [[1.2, 0.9, 0.6], [1.5, 1.5, 1.0]]


def test_one_value_and_one_advantage_a_turn():
    turns, mask = ((0, 2), (3, 5)), (True, True, False, True, True)
    item = scored(1.0, (1, 2, 3, 4, 5), mask=mask, turns=turns, values=(0.5, 9.0, 9.0, 0.5, 9.0))
    assert estimates(item, lam=0.5, level="turn") == [[0.25, 0.25, 0.0, 0.5, 0.5], [0.75, 0.75, 0.0, 1.0, 1.0]]


def test_a_bootstrap_enters_the_last_delta():
    item = scored(None, (1, 2), steps=((0, 1.0),), values=(0.5, 0.25), bootstrap=0.75)
    # Deltas 1 + .25 - .5 and .75 - .25.
    assert estimates(item, lam=0.0) == [[0.75, 0.5], [1.25, 0.75]]


def test_whitening_leaves_returns_alone():
    algorithm = parts("ppo", kl={"coef": 0.0}, credit={"lam": 1.0})
    items = [scored(v, values=(0.0,)) for v in (1.0, 0.0)]
    found = credit(items, algorithm, CreditState(kl_coef=0.0), alone)
    assert [a.tolist() for a in found.advantages] == [[1.0], [-1.0]]
    assert [r.tolist() for r in found.returns] == [[1.0], [0.0]]


# KL in the reward. -----------------------------------------------------------------------------------------------


def test_kl_is_part_of_the_sequence_score_where_rollouts_are_compared():
    # KL 4 and 1 at .05: totals .8 and -.05, mean .375.
    items = [scored(1.0, (1, 2), ref=(-3.0, -3.0)), scored(0.0, (1,), ref=(-2.0,))]
    kl = {"coef": 0.05, "estimator": "k1", "place": "reward"}
    assert advantages(items, parts("dr_grpo", kl=kl)) == [[0.425, 0.425], [-0.425]]


def test_kl_of_the_sequence_is_blind_to_observations():
    items = [
        scored(0.0, (1, 2, 3), mask=SPARSE, logps=(-1.0, 50.0, -1.0), ref=(-3.0, math.nan, -3.0)),
        scored(0.0, (1,), ref=(-1.0,)),
    ]
    assert advantages(items, parts("rloo")) == [[-0.2, 0.0, -0.2], [0.2]]


def test_kl_is_paid_at_each_token_where_own_rewards_are_summed():
    # Gaps 2 and 4 at .25: -.5 and 1 - 1.
    item = scored(1.0, (1, 2, 3), mask=SPARSE, ref=(-3.0, -7.0, -5.0))
    algorithm = dataclasses.replace(own(), kl=parts("ppo", kl={"coef": 0.25}).kl)
    assert advantages([item], algorithm) == [[-0.5, 0.0, 0.0]]


def test_kl_is_paid_where_only_steps_are_scored():
    items = [
        scored(None, (1, 2), steps=((0, 1.0),), ref=(-3.0, -3.0)),
        scored(None, (1, 2), steps=((0, 1.0),), ref=(-1.0, -1.0)),
    ]
    assert advantages(items, parts("rloo")) == [[-0.2, -0.2], [0.2, 0.2]]


def test_the_coefficient_in_use_is_that_of_the_state():
    items = [scored(0.0, (1,), ref=(-3.0,)), scored(0.0, (1,), ref=(-1.0,))]
    assert advantages(items, parts("rloo"), CreditState(kl_coef=0.5)) == [[-1.0], [1.0]]


def test_kl_in_the_loss_is_not_in_the_reward():
    items = [scored(1.0, (1,), ref=(-30.0,)), scored(0.0, (1,), ref=(-1.0,))]
    assert advantages(items, parts("dr_grpo", kl={"coef": 0.5})) == [[0.5], [-0.5]]


# A teacher. ------------------------------------------------------------------------------------------------------


def test_a_sampled_teacher_rewards_each_token_alone():
    teacher = parts("opd", distill={"form": "sampled", "coef": 0.5})
    items = [scored(0.0, (1, 2, 3), mask=SPARSE, teacher=(-3.0, -9.0, 0.0)), scored(0.0, (1,), teacher=(-1.0,))]
    assert advantages(items, teacher) == [[-1.0, 0.0, 0.5], [0.0]]


def test_a_sampled_teacher_averages_to_the_reverse_kl():
    # Student .5 / .5, teacher .8 / .2: KL(student || teacher) = .223.
    half = (math.log(0.5),)
    items = [scored(0.0, (i,), logps=half, teacher=(math.log(q),)) for i, q in enumerate((0.8, 0.2))]
    got = advantages(items, parts("opd", distill={"form": "sampled"}))
    assert -(0.5 * got[0][0] + 0.5 * got[1][0]) == pytest.approx(0.223144, abs=1e-6)


# What is remembered. ---------------------------------------------------------------------------------------------


def test_running_mean_over_three_steps():
    algorithm = parts(credit={"baseline": "ema", "scale": "none"}, kl={"coef": 0.0})
    state = CreditState(kl_coef=0.0)
    wanted = [([1.0, 0.0], [0.5, -0.5], 0.5), ([1.0, 1.0], [0.5, 0.5], 0.55), ([0.0, 1.0], [-0.55, 0.45], 0.545)]
    for step, (rewards, found, mean) in enumerate(wanted, start=1):
        items = [scored(r) for r in rewards]
        assert advantages(items, algorithm, state) == [[a] for a in found]
        state = state.after(algorithm, items, 0.0, alone)
        assert state.means[0] == pytest.approx(mean)
        assert math.isnan(state.means[1])
        assert state.steps == step


def test_steps_have_a_running_mean_of_their_own():
    algorithm = parts(credit={"baseline": "ema", "scale": "none"}, kl={"coef": 0.0})
    first = [scored(4.0, steps=((0, 1.0),)), scored(2.0, steps=((0, 0.0),))]
    state = CreditState(kl_coef=0.0).after(algorithm, first, 0.0, alone)
    assert state.means == (3.0, 0.5)
    state = state.after(algorithm, [scored(None, steps=((0, 1.5),))], 0.0, alone)
    assert state.means == pytest.approx((3.0, 0.6))
    assert advantages([scored(3.0, steps=((0, 1.0),))], algorithm, state) == [[0.4]]


def test_running_means_are_those_of_all_processes():
    algorithm = parts(credit={"baseline": "ema"}, kl={"coef": 0.0})

    def with_partner(local):
        return local + torch.tensor([3.0, 1.0], dtype=local.dtype)  # the partner's one reward of 3

    assert CreditState(kl_coef=0.0).after(algorithm, [scored(1.0)], 0.0, with_partner).means[0] == 2.0


def test_the_kl_coefficient_follows_the_measured_kl():
    algorithm = parts("grpo", kl={"coef": 0.1, "target": 6.0})
    state = CreditState(kl_coef=0.1)
    # Errors 1 -> .2 (limited), .1, -1 -> -.2 (limited), 0; the gain is .1.
    for kl, wanted in ((12.0, 0.102), (6.6, 0.10302), (0.0, 0.1009596), (6.0, 0.1009596)):
        state = state.after(algorithm, [scored(1.0)], kl, alone)
        assert state.kl_coef == pytest.approx(wanted, rel=1e-9)


def test_without_a_target_the_coefficient_stays():
    assert CreditState(kl_coef=0.05).after(parts("grpo"), [scored(1.0)], 99.0, alone).kl_coef == 0.05


def test_the_running_mean_is_of_what_it_is_subtracted_from():
    """With the KL in the reward, both are rewards after the KL."""
    algorithm = parts("rloo", credit={"baseline": "ema"})
    items = [scored(0.0, (1,), ref=(-21.0,)), scored(0.0, (1,), ref=(-21.0,))]
    state = CreditState(kl_coef=0.05).after(algorithm, items, 20.0, alone)
    assert credit(items, algorithm, state, alone).advantages[0].item() == pytest.approx(0.0)


def test_a_soft_penalty_leaves_an_open_episode_open():
    cut = rollout((1,) * 4, stop=StopReason.LENGTH)
    (item,) = countable([cut], [Score(steps=((0, 1.0),))], OverlongSpec(rule="soft"), 4)
    assert item.awaits
    assert item.score.steps == ((0, 1.0), (3, pytest.approx(-1.0)))


def test_the_kl_paid_is_that_of_the_learner_where_it_is_known():
    """A stale sampler that equals the reference would hide all drift since."""
    algorithm = parts("rloo", kl={"coef": 0.5}, truncate=2.0)
    drifted = scored(0.0, (1,), logps=(-1.0,), ref=(-1.0,), learner=(-0.2,))
    still = scored(0.0, (1,), logps=(-1.0,), ref=(-1.0,), learner=(-1.0,))
    advantages = credit([drifted, still], algorithm, CreditState(kl_coef=0.5), alone).advantages
    assert [float(a[0]) for a in advantages] == pytest.approx([-0.4, 0.4])
