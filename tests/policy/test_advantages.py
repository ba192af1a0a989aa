from __future__ import annotations

import pytest
import torch

from prefrl.policy.advantages import centred, reduction_weights, scaled, spread, uniform


def credit(rewards, baseline, scale="none", groups=None, rollouts=None, dtype=torch.float64):
    values = torch.tensor(rewards, dtype=dtype)
    groups = torch.zeros(len(rewards), dtype=torch.long) if groups is None else torch.tensor(groups)
    owners = torch.arange(len(rewards)) if rollouts is None else torch.tensor(rollouts)
    return scaled(centred(values, owners, groups, baseline), values, groups, scale)


def close(got, wanted, atol=5e-4):
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=got.dtype), atol=atol, rtol=0)


def test_group_mean():
    close(credit([1, 0, 0, 0], "group_mean"), [0.75, -0.25, -0.25, -0.25])


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ([1, 1, 0, 0], [1, 1, -1, -1]),
        ([1, 0, 0, 0], [1.732, -0.577, -0.577, -0.577]),
        ([1, 1, 1, 0], [0.577, 0.577, 0.577, -1.732]),
    ],
)
def test_group_std_is_the_population_one(rewards, wanted):
    close(credit(rewards, "group_mean", "group_std"), wanted)


def test_leave_one_out_is_n_over_n_minus_one_times_centred():
    rewards = [0.3, 1.7, -0.2, 0.9, 0.4]
    torch.testing.assert_close(credit(rewards, "leave_one_out"), 5 / 4 * credit(rewards, "group_mean"))


def test_partial_rewards():
    close(credit([0, 0.25, 0.5, 0.25], "group_mean"), [-0.25, 0, 0.25, 0])


@pytest.mark.parametrize(
    ("value", "count", "dtype"), [(0.9, 8, torch.float32), (0.1, 3, torch.float64), (0.35, 8, torch.float32)]
)
@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
def test_groups_equal_up_to_float_noise_give_exactly_zero(value, count, dtype, baseline):
    assert (credit([value] * count, baseline, "group_std", dtype=dtype) == 0).all()
    assert uniform(torch.tensor([value] * count, dtype=dtype), torch.zeros(count, dtype=torch.long)).all()


def test_a_single_odd_reward_is_not_blown_up_by_a_leave_one_out_std():
    close(credit([0.35] * 7 + [0.0], "leave_one_out")[-1:], [-0.35])
    close(credit([0.3] * 7 + [0.9], "leave_one_out")[-1:], [0.6])


def test_groups_of_one_have_nothing_to_compare_with():
    assert credit([5.0, 1.0, 0.0], "group_mean", groups=[0, 1, 1]).tolist() == [0.0, 0.5, -0.5]
    assert credit([5.0, 1.0, 0.0], "leave_one_out", groups=[0, 1, 1]).tolist() == [0.0, 1.0, -1.0]


def test_membership_decides_not_position():
    mixed = credit([1, 0, 0, 1, 1, 0.5], "group_mean", "group_std", groups=[0, 1, 0, 1, 0, 1])
    sorted_ = credit([1, 0, 1, 0, 1, 0.5], "group_mean", "group_std", groups=[0, 0, 0, 1, 1, 1])
    torch.testing.assert_close(mixed, sorted_[[0, 3, 1, 4, 2, 5]])


def test_batch_mean_and_none():
    close(credit([1, 0, 0.5], "batch_mean"), [0.5, -0.5, 0])
    close(credit([1, 0, 0.5], "none"), [1, 0, 0.5])


def test_unequal_group_uses_all_its_members():
    close(credit([0, 1, 1, 1], "group_mean"), [-0.75, 0.25, 0.25, 0.25])


def test_step_events_follow_process_supervision():
    # Two rollouts: steps (0.2, 0.8) and (0.4, 0.2); group mean of all four is 0.4.
    events = credit([0.2, 0.8, 0.4, 0.2], "group_mean", groups=[0] * 4, rollouts=[0, 0, 1, 1])
    close(events, [-0.2, 0.4, 0.0, -0.2])
    close(spread(events[:2], torch.tensor([1, 3]), 5), [0.2, 0.2, 0.4, 0.4, 0.0])


def test_one_terminal_event_reaches_every_token():
    close(spread(torch.tensor([0.7]), torch.tensor([2]), 3), [0.7, 0.7, 0.7])


def weights(lengths, groups, reduction, constant=20):
    lengths, groups = torch.tensor(lengths), torch.tensor(groups)
    total = torch.tensor([len(lengths), lengths.sum(), len(groups.unique())], dtype=torch.float64)
    return reduction_weights(lengths, groups, reduction, constant, total)


def test_reductions():
    close(weights([4, 1], [0, 0], "token_mean"), [0.2, 0.2])
    close(weights([4, 1], [0, 0], "sequence_mean"), [0.125, 0.5])
    close(weights([4, 1], [0, 0], "sequence_sum"), [0.5, 0.5])
    close(weights([4, 1], [0, 0], "constant"), [0.025, 0.025])
    close(weights([4, 1, 5], [0, 0, 1], "prompt_mean"), [0.1, 0.1, 0.1])


def test_dr_grpo_removes_the_length_bias():
    # Advantage -0.5: the per-response mean weighs a token by the length of its response, the constant does not.
    assert [-0.5 * float(weights([n], [0], "sequence_mean")) for n in (2, 20)] == [-0.25, -0.025]
    assert [-0.5 * float(weights([n], [0], "constant")) for n in (2, 20)] == [-0.025, -0.025]


def test_token_mean_is_over_the_global_batch():
    # Losses [1, 1, 1, 1] and [5]: 9 / 5, whatever the split.
    w = weights([4, 1], [0, 1], "token_mean")
    assert float(4 * w[0] * 1 + w[1] * 5) == pytest.approx(1.8)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "sequence_sum", "constant", "prompt_mean"])
def test_duplicating_the_batch_changes_no_sum(reduction):
    once = weights([3, 7, 2], [0, 0, 1], reduction)
    twice = weights([3, 7, 2] * 2, [0, 0, 1, 2, 2, 3], reduction)
    torch.testing.assert_close(twice, torch.cat([once, once]) / 2)
