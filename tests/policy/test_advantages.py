from __future__ import annotations

import math

import pytest
import torch

from prefrl.policy.advantages import (
    centred,
    decisions,
    gae,
    moments,
    per_decision,
    reduction_weights,
    rewards_to_go,
    scaled,
    to_tokens,
    uniform,
    whitened,
)


def compare(rewards, baseline, scale="none", groups=None, rollouts=None, dtype=torch.float64, **more):
    values = torch.tensor(rewards, dtype=dtype)
    groups = torch.zeros(len(rewards), dtype=torch.long) if groups is None else torch.tensor(groups)
    owners = torch.arange(len(rewards)) if rollouts is None else torch.tensor(rollouts)
    return scaled(centred(values, owners, groups, baseline, **more), values, groups, scale)


def close(got, wanted, atol=5e-4):
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=got.dtype), atol=atol, rtol=0)


def other_process(*sums):
    """`total_of` of a process whose partner adds these sums, call by call."""
    partner = iter(sums)
    return lambda local: local + torch.tensor(next(partner), dtype=local.dtype)


# Baselines. ------------------------------------------------------------------------------------------------------


def test_group_mean():
    close(compare([1, 0, 0, 0], "group_mean"), [0.75, -0.25, -0.25, -0.25])


def test_group_mean_of_partial_rewards():
    close(compare([0, 0.25, 0.5, 0.25], "group_mean"), [-0.25, 0, 0.25, 0])


def test_group_mean_takes_all_members_of_unequal_groups():
    close(compare([0, 1, 1, 1, 1, 0], "group_mean", groups=[0, 0, 0, 0, 1, 1]), [-0.75, 0.25, 0.25, 0.25, 0.5, -0.5])


def test_leave_one_out_subtracts_the_mean_of_the_others():
    close(compare([1, 0, 0, 0], "leave_one_out"), [1, -1 / 3, -1 / 3, -1 / 3], 1e-12)


def test_leave_one_out_is_n_over_n_minus_one_times_centred():
    rewards = [0.3, 1.7, -0.2, 0.9, 0.4]
    torch.testing.assert_close(compare(rewards, "leave_one_out"), 5 / 4 * compare(rewards, "group_mean"))


def test_leave_one_out_of_steps_leaves_out_the_whole_rollout():
    # Steps .2 and .8 against the other rollout's .4 and .2, and back: means .3 and .5.
    close(compare([0.2, 0.8, 0.4, 0.2], "leave_one_out", rollouts=[0, 0, 1, 1]), [-0.1, 0.5, -0.1, -0.3], 1e-12)


def test_batch_mean_and_none():
    close(compare([1, 0, 0.5], "batch_mean"), [0.5, -0.5, 0])
    close(compare([1, 0, 0.5], "none"), [1, 0, 0.5])
    close(compare([1, 0, 0.5], "critic"), [1, 0, 0.5])


def test_batch_mean_is_that_of_all_processes():
    # The partner has rewards 1, 1: sum 2 over 2, then squared differences to the mean .75.
    close(compare([1, 0], "batch_mean", total_of=other_process([2.0, 2.0], [2 * 0.0625])), [0.25, -0.75], 1e-12)


def test_running_mean_replaces_the_batch_mean_once_there_is_one():
    close(compare([1, 0], "ema"), [0.5, -0.5])
    close(compare([1, 0], "ema", ema=0.2), [0.8, -0.2])
    close(compare([1, 1], "ema", ema=0.2), [0.8, 0.8])


def test_membership_decides_not_position():
    mixed = compare([1, 0, 0, 1, 1, 0.5], "group_mean", "group_std", groups=[0, 1, 0, 1, 0, 1])
    in_order = compare([1, 0, 1, 0, 1, 0.5], "group_mean", "group_std", groups=[0, 0, 0, 1, 1, 1])
    torch.testing.assert_close(mixed, in_order[[0, 3, 1, 4, 2, 5]])
    close(compare([1, 0, 1, 0], "group_mean", groups=[7, 3, 3, 7]), [0.5, -0.5, 0.5, -0.5])


def test_groups_of_one_have_nothing_to_compare_with():
    assert compare([5.0, 1.0, 0.0], "group_mean", groups=[0, 1, 1]).tolist() == [0.0, 0.5, -0.5]
    assert compare([5.0, 1.0, 0.0], "leave_one_out", groups=[0, 1, 1]).tolist() == [0.0, 1.0, -1.0]


def test_several_events_of_one_rollout_are_not_a_comparison():
    assert compare([1.0, 3.0], "group_mean", "group_std", rollouts=[0, 0]).tolist() == [0.0, 0.0]


# Scales. ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ([1, 1, 0, 0], [1, 1, -1, -1]),
        ([1, 0, 0, 0], [1.732, -0.577, -0.577, -0.577]),
        ([1, 1, 1, 0], [0.577, 0.577, 0.577, -1.732]),
    ],
)
def test_group_std_is_the_population_one(rewards, wanted):
    close(compare(rewards, "group_mean", "group_std"), wanted)


def test_batch_std_is_over_all_groups():
    # Rewards 1, 0, 1, 1: mean .75, population variance 3/16.
    got = compare([1, 0, 1, 1], "group_mean", "batch_std", groups=[0, 0, 1, 1])
    close(got, [0.5 / math.sqrt(3 / 16), -0.5 / math.sqrt(3 / 16), 0.0, 0.0], 1e-12)


def test_a_scale_of_zero_leaves_advantages_as_they_are():
    assert compare([2.0, 2.0], "none", "batch_std").tolist() == [2.0, 2.0]
    assert compare([2.0, 2.0], "ema", "group_std", ema=0.5).tolist() == [1.5, 1.5]


def test_whitening_is_left_to_tokens():
    assert compare([1.0, 0.0], "group_mean", "whiten").tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("value", "count", "dtype"),
    [(0.9, 8, torch.float32), (0.7, 8, torch.float32), (0.35, 8, torch.float32), (0.1, 3, torch.float64)],
)
@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out", "batch_mean"])
@pytest.mark.parametrize("scale", ["none", "group_std", "batch_std"])
def test_rewards_equal_up_to_float_noise_give_exactly_zero(value, count, dtype, baseline, scale):
    assert (compare([value] * count, baseline, scale, dtype=dtype) == 0).all()
    assert uniform(torch.tensor([value] * count, dtype=dtype), torch.zeros(count, dtype=torch.long)).all()


def test_sums_that_differ_by_rounding_are_equal_and_small_differences_are_not():
    groups = torch.zeros(2, dtype=torch.long)
    assert uniform(torch.tensor([0.1 + 0.2, 0.3], dtype=torch.float64), groups).all()
    assert not uniform(torch.tensor([0.5, 0.50001], dtype=torch.float64), groups).any()
    assert uniform(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([4, 2, 4])).tolist() == [True] * 3


def test_a_single_odd_reward_is_not_blown_up_by_the_spread_of_the_others():
    close(compare([0.35] * 7 + [0.0], "leave_one_out")[-1:], [-0.35])
    close(compare([0.3] * 7 + [0.9], "leave_one_out")[-1:], [0.6])
    # Seven against one: (r - mean) / std is sqrt(7) in size for the one, 1 / sqrt(7) for the others.
    close(compare([0.35] * 7 + [0.0], "group_mean", "group_std"), [1 / math.sqrt(7)] * 7 + [-math.sqrt(7)])


def test_moments_are_those_of_all_processes():
    assert moments(torch.tensor([1.0, 3.0])) == (2.0, 1.0)
    # The partner has 5 and 7: mean 4, squares 9 + 1 here and 1 + 9 there.
    mean, std = moments(torch.tensor([1.0, 3.0]), other_process([12.0, 2.0], [10.0]))
    assert (mean, std) == (4.0, pytest.approx(math.sqrt(5.0)))
    assert moments(torch.zeros(0)) == (0.0, 0.0)
    assert moments(torch.tensor([0.1] * 3, dtype=torch.float64))[1] == 0.0


def test_whitening_reads_sampled_tokens_only():
    # Sampled 1, 3, 5: mean 3, variance 8/3. The 99 is an observation.
    first, second = whitened(
        [torch.tensor([1.0, 99.0, 3.0], dtype=torch.float64), torch.tensor([5.0], dtype=torch.float64)],
        [(True, False, True), (True,)],
    )
    close(first, [-math.sqrt(1.5), 0.0, 0.0], 1e-12)
    close(second, [math.sqrt(1.5)], 1e-12)


def test_whitening_equal_advantages_gives_exactly_zero():
    (got,) = whitened([torch.full((3,), 0.9)], [(True, True, True)])
    assert got.tolist() == [0.0, 0.0, 0.0]


# Decisions and time. ---------------------------------------------------------------------------------------------

MASK = (True, True, False, False, True, True)
TURNS = ((0, 2), (4, 6))


def test_decisions_are_sampled_tokens_or_turns():
    assert decisions(MASK, TURNS, "token") == [[0], [1], [4], [5]]
    assert decisions(MASK, TURNS, "turn") == [[0, 1], [4, 5]]
    assert decisions(MASK, (), "turn") == [[0, 1, 4, 5]]
    assert decisions(MASK, ((0, 2), (2, 4), (4, 6)), "turn") == [[0, 1], [4, 5]]


def test_a_reward_belongs_to_the_last_decision_begun_by_then():
    of = [[0, 1], [4, 5]]
    assert per_decision([(1, 0.5), (3, 0.25), (4, 1.0), (5, 2.0)], of) == [0.75, 3.0]
    assert per_decision([(0, 1.0)], [[2], [3]]) == [1.0, 0.0]


def test_a_decisions_value_stands_on_all_its_tokens():
    assert to_tokens([7.0, 9.0], [[0, 1], [4, 5]], 6).tolist() == [7.0, 7.0, 0.0, 0.0, 9.0, 9.0]


def test_reward_to_go_of_a_terminal_reward_is_that_reward_at_every_step():
    assert rewards_to_go([0.0, 0.0, 1.0]) == [1.0, 1.0, 1.0]
    assert rewards_to_go([0.0, 0.0, 1.0], 0.5) == [0.25, 0.5, 1.0]
    assert rewards_to_go([1.0, 2.0, 4.0]) == [7.0, 6.0, 4.0]
    assert rewards_to_go([1.0, 2.0, 4.0], 0.5) == [3.0, 4.0, 4.0]


VALUES, REWARDS = [0.3, 0.6, 0.4], [0.0, 0.0, 0.0]


def test_temporal_differences():
    assert gae(REWARDS, VALUES, 1.0, 0.0) == pytest.approx([0.3, -0.2, -0.4])


def test_generalized_advantages():
    # .3 + .5 (-.2 + .5 (-.4)) = .1
    assert gae(REWARDS, VALUES, 1.0, 0.5) == pytest.approx([0.1, -0.4, -0.4])


def test_lambda_one_is_the_return_minus_the_value():
    rewards = [0.5, -1.0, 2.0]
    returns = rewards_to_go(rewards, 0.9)
    assert gae(rewards, VALUES, 0.9, 1.0) == pytest.approx([r - v for r, v in zip(returns, VALUES, strict=True)])


def test_lambda_zero_is_one_step_with_discount():
    # r + .9 V' - V
    assert gae([0.5, -1.0, 2.0], VALUES, 0.9, 0.0) == pytest.approx([0.74, -1.24, 1.6])


def test_a_bootstrap_continues_a_cut_episode():
    assert gae([0.0, 0.0], [0.5, 0.5], 0.5, 0.0, bootstrap=0.8) == pytest.approx([-0.25, -0.1])
    assert gae([0.0, 0.0], [0.5, 0.5], 0.5, 1.0, bootstrap=0.8) == pytest.approx([0.2 - 0.5, 0.4 - 0.5])


# Reductions. -----------------------------------------------------------------------------------------------------


def weights(lengths, groups, reduction, constant=20):
    lengths, groups = torch.tensor(lengths), torch.tensor(groups)
    total = torch.tensor([len(lengths), lengths.sum(), len(groups.unique())], dtype=torch.float64)
    return reduction_weights(lengths, groups, reduction, constant, total)


def test_reductions():
    close(weights([4, 1], [0, 0], "token_mean"), [0.2, 0.2], 1e-12)
    close(weights([4, 1], [0, 0], "sequence_mean"), [0.125, 0.5], 1e-12)
    close(weights([4, 1], [0, 0], "sequence_sum"), [0.5, 0.5], 1e-12)
    close(weights([4, 1], [0, 0], "constant"), [0.025, 0.025], 1e-12)
    close(weights([4, 1, 5], [0, 0, 1], "prompt_mean"), [0.1, 0.1, 0.1], 1e-12)


def test_a_constant_removes_the_length_bias():
    # Advantage -0.5: the per-response mean weighs a token by the length of its response, the constant does not.
    assert [-0.5 * float(weights([n], [0], "sequence_mean")) for n in (2, 20)] == [-0.25, -0.025]
    assert [-0.5 * float(weights([n], [0], "constant")) for n in (2, 20)] == [-0.025, -0.025]


def test_token_mean_is_over_the_whole_batch():
    # Losses [1, 1, 1, 1] and [5]: 9 / 5, whatever the split.
    w = weights([4, 1], [0, 1], "token_mean")
    assert float(4 * w[0] * 1 + w[1] * 5) == pytest.approx(1.8)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean"])
def test_duplicating_the_batch_changes_no_sum(reduction):
    once = weights([3, 7, 2], [0, 0, 1], reduction)
    twice = weights([3, 7, 2] * 2, [0, 0, 1, 2, 2, 3], reduction)
    torch.testing.assert_close(twice, torch.cat([once, once]) / 2)
