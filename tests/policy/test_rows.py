from __future__ import annotations

import math

import pytest
import torch
from fakes import alone, parts, scored

from prefrl.policy.credit import CreditState, credit
from prefrl.policy.parts import SelectSpec
from prefrl.policy.rows import (
    history_rows,
    judged_rows,
    mismatched_rows,
    paired_rows,
    selected_rows,
    value_rows,
    weighted_rows,
    with_imitation,
)
from prefrl.types import Row, StopReason

SPARSE = (True, False, True)


def close(got, wanted, atol=1e-6):
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=got.dtype), atol=atol, rtol=0, equal_nan=True)


def plain(name="dr_grpo", **changes):
    return parts(name, **{"kl": {"coef": 0.0}, **changes})


# Weights. --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reduction", "weights"),
    [
        ("token_mean", (1 / 3, 1 / 3)),
        ("sequence_mean", (1 / 4, 1 / 2)),
        ("sequence_sum", (1 / 2, 1 / 2)),
        ("constant", (1 / 20, 1 / 20)),
        ("prompt_mean", (1 / 3, 1 / 3)),
    ],
)
def test_the_reduction_is_folded_into_the_advantage(reduction, weights):
    # Advantages .5 and -.5 on two sampled tokens and one; the budget is 10.
    items = [scored(1.0, (1, 2, 3), mask=SPARSE), scored(0.0, (4,))]
    first, second = weighted_rows(items, plain(reduction=reduction), 10, alone)
    close(first.streams["rl"], [0.5 * weights[0], 0.0, 0.5 * weights[0]])
    close(second.streams["rl"], [-0.5 * weights[1]])


def test_per_token_weights_of_short_and_long_answers():
    # Advantage -.5 in a batch of one: 1 / length favours long failures, the constant 20 does not.
    for reduction, wanted in (("sequence_mean", [-0.25, -0.025]), ("constant", [-0.025, -0.025])):
        found = []
        for length in (2, 20):
            item = scored(-0.5, (1,) * length)
            algorithm = plain("reinforce_pp", credit={"scale": "none"}, reduction=reduction)
            (row,) = weighted_rows([item], algorithm, 20, alone)
            found.append(float(row.streams["rl"][0]))
        assert found == pytest.approx(wanted)


def test_denominators_are_those_of_all_processes():
    def with_partner(local):
        return local + torch.tensor([2.0, 5.0, 1.0], dtype=local.dtype)  # two rollouts of five tokens, one group

    items = [scored(1.0, (1, 2, 3)), scored(0.0, (4, 5))]
    for reduction, weight in (("token_mean", 1 / 10), ("sequence_sum", 1 / 4), ("prompt_mean", 1 / 10)):
        first, _ = weighted_rows(items, plain(reduction=reduction), 10, with_partner)
        close(first.streams["rl"], [0.5 * weight] * 3)


def test_a_row_is_its_rollout():
    item = scored(1.0, (1, 2, 3), mask=SPARSE, logps=(-0.1, 0.0, -0.3), prompt_ids=(8, 9), ref=(-0.2, 0.0, -0.4))
    (row,) = weighted_rows([item], plain(), 10, alone)
    assert (row.prompt_ids, row.completion_ids, row.mask) == ((8, 9), (1, 2, 3), SPARSE)
    close(row.streams["old_logps"], [-0.1, 0.0, -0.3])
    close(row.streams["ref_logps"], [-0.2, 0.0, -0.4])
    assert set(row.streams) == {"rl", "old_logps", "ref_logps"}


def test_constant_streams_carry_coefficient_times_weight():
    items = [scored(1.0, (1, 2, 3), ref=(-1.0,) * 3), scored(0.0, (4,), ref=(-1.0,))]
    algorithm = parts("dr_grpo", kl={"coef": 0.4}, entropy=0.2, distill={"coef": 3.0}, reduction="token_mean")
    first, second = weighted_rows(items, algorithm, 10, alone)
    for name, coef in (("ref_kl", 0.4), ("entropy", 0.2), ("teacher_kl", 3.0)):
        close(first.streams[name], [coef / 4] * 3)
        close(second.streams[name], [coef / 4])


def test_streams_that_are_not_asked_for_are_absent():
    items = [scored(1.0, ref=(-1.0,), teacher=(-1.0,)), scored(0.0, ref=(-1.0,), teacher=(-1.0,))]
    in_reward = parts("rloo", distill={"coef": 1.0, "form": "sampled"})
    for row in weighted_rows(items, in_reward, 10, alone):
        assert set(row.streams) == {"rl", "old_logps", "ref_logps"}


def test_the_kl_stream_follows_the_coefficient_of_the_state():
    items = [scored(1.0, ref=(-1.0,)), scored(0.0, ref=(-1.0,))]
    row, _ = weighted_rows(items, parts("grpo"), 10, alone, state=CreditState(kl_coef=0.5))
    close(row.streams["ref_kl"], [0.25])


# Samples of another policy. --------------------------------------------------------------------------------------


def test_truncated_weights_are_folded_in_and_old_is_the_learner():
    learner = (-1.0 + math.log(0.5), -1.0 + math.log(1.5), -1.0 + math.log(50.0))
    items = [scored(1.0, (1, 2, 3), learner=learner), scored(0.0, (4,), learner=(-1.0,))]
    algorithm = plain("dr_grpo", truncate=2.0, reduction="token_mean")
    first, second = weighted_rows(items, algorithm, 10, alone)
    close(first.streams["rl"], [0.5 * 0.5 / 4, 0.5 * 1.5 / 4, 0.5 * 2.0 / 4])
    close(first.streams["old_logps"], learner)
    close(second.streams["rl"], [-0.5 / 4])


# Learning the observations. --------------------------------------------------------------------------------------


def test_observation_tokens_are_learnt_by_cross_entropy_when_asked():
    items = [scored(1.0, (1, 2, 3), mask=SPARSE), scored(0.0, (4, 5, 6), mask=(False, False, True))]
    first, second = weighted_rows(items, plain("dr_grpo", echo=0.6), 10, alone)
    assert first.mask == second.mask == (True, True, True)
    close(first.streams["ce"], [0.0, 0.2, 0.0])
    close(second.streams["ce"], [0.2, 0.2, 0.0])
    close(first.streams["sampled"], [1.0, 0.0, 1.0])
    close(first.streams["rl"], [0.5 / 20, 0.0, 0.5 / 20])


def test_by_default_observation_tokens_are_left_out():
    first, _ = weighted_rows([scored(1.0, (1, 2, 3), mask=SPARSE), scored(0.0)], plain(), 10, alone)
    assert first.mask == SPARSE
    assert "ce" not in first.streams


def test_without_observation_tokens_nothing_is_learnt_from_them():
    for row in weighted_rows([scored(1.0), scored(0.0)], plain("dr_grpo", echo=0.6), 10, alone):
        assert row.streams["ce"].tolist() == [0.0]


# Selection. ------------------------------------------------------------------------------------------------------


def selected(items, spec, reduction="token_mean"):
    return selected_rows(items, parts("rejection", reduction=reduction), spec, 10, alone)


def test_all_at_or_above_the_threshold_are_kept():
    items = [scored(v, (i,) * (i + 1)) for i, v in enumerate((1.0, 0.5, 0.49, 2.0))]
    rows = selected(items, SelectSpec(threshold=0.5))
    assert [len(row.mask) for row in rows] == [1, 2, 4]
    for row in rows:
        close(row.streams["ce"], [1 / 7] * len(row.mask))


def test_the_best_of_each_group_are_kept():
    items = [scored(v, (i,), group=g) for i, (v, g) in enumerate([(0.2, "a"), (0.4, "a"), (-1.0, "b"), (-2.0, "b")])]
    assert [row.completion_ids for row in selected(items, SelectSpec(keep="best"))] == [(1,), (2,)]


def test_equal_answers_of_a_group_are_learnt_once():
    items = [scored(1.0, (7, 8)), scored(1.0, (7, 8)), scored(1.0, (7, 8), group="other")]
    rows = selected(items, SelectSpec())
    assert len(rows) == 2
    close(rows[0].streams["ce"], [0.25, 0.25])


def test_nothing_accepted_is_no_rows():
    assert selected([scored(0.0), scored(0.5)], SelectSpec()) == []


# Pairs. ----------------------------------------------------------------------------------------------------------


def test_the_best_and_the_worst_of_each_group_are_a_pair():
    values = [("a", 0.5), ("a", 1.0), ("a", 0.0), ("b", 0.2), ("b", 0.2), ("c", 3.0), ("c", 1.0)]
    items = [scored(v, (i,), group=g) for i, (g, v) in enumerate(values)]
    rows = paired_rows(items, 0.1, alone)
    assert [(row.completion_ids[0], row.side, row.atom) for row in rows] == [
        (1, 1, 0),
        (2, -1, 0),
        (5, 1, 2),
        (6, -1, 2),
    ]
    assert {row.label for row in rows} == {0.9}
    assert {row.weight for row in rows} == {0.5}


def test_pair_weights_count_the_pairs_of_all_processes():
    def with_partner(local):
        return local + 3.0

    rows = paired_rows([scored(1.0), scored(0.0)], 0.0, with_partner)
    assert {row.weight for row in rows} == {0.25}


def test_each_rollout_is_judged_by_the_mean_of_its_group():
    values = [("a", 0.5), ("a", 1.0), ("a", 0.0), ("b", 0.2), ("b", 0.2), ("c", 3.0), ("c", 1.0)]
    items = [scored(v, (i,), group=g) for i, (g, v) in enumerate(values)]
    rows = judged_rows(items, 0.1, alone)
    # The first is its group's mean, and the second group has no difference.
    assert [(row.completion_ids[0], row.side) for row in rows] == [(1, 1), (2, -1), (5, 1), (6, -1)]
    assert len({row.atom for row in rows}) == 4
    assert {(row.label, row.weight) for row in rows} == {(0.9, 0.25)}
    assert {row.weight for row in judged_rows(items, 0.0, lambda local: local + 4.0)} == {0.125}


def test_the_sft_term_is_a_mean_over_the_tokens_of_chosen_completions():
    sides = [(1, 3, 0.5), (-1, 9, 0.5), (1, 1, 0.5), (-1, 2, 0.5)]
    rows = [Row(prompt_ids=(5,), completion_ids=(1,) * n, mask=(True,) * n, side=s, weight=w) for s, n, w in sides]
    learnt = with_imitation(rows, 2.0, alone)
    assert [row.streams["ce"].tolist() for row in learnt] == [[0.5] * 3, [0.0] * 9, [0.5], [0.0] * 2]
    assert all("ce" not in row.streams for row in rows)  # the same rows come back in the next pass
    elsewhere = with_imitation(rows, 2.0, lambda local: local + 2.0)  # four more tokens of weight .5
    assert elsewhere[0].streams["ce"].tolist() == [0.25] * 3


def test_the_sft_term_weighs_pairs_as_the_loss_does_and_skips_masked_tokens():
    rows = [
        Row(prompt_ids=(5,), completion_ids=(1, 2, 3), mask=(True, False, True), side=1, weight=0.75),
        Row(prompt_ids=(5,), completion_ids=(1,), mask=(True,), side=1, weight=0.25),
    ]
    first, second = (row.streams["ce"][0].item() for row in with_imitation(rows, 1.0, alone))
    assert (first, second) == pytest.approx((0.75 / 1.75, 0.25 / 1.75))


def test_the_sft_term_imitates_the_side_that_is_preferred_and_none_of_a_tie():
    sides = [(side, label) for label in (0.9, 0.2, 0.5) for side in (1, -1)]
    rows = [Row(prompt_ids=(5,), completion_ids=(1,), mask=(True,), side=side, label=p) for side, p in sides]
    assert [float(row.streams["ce"]) for row in with_imitation(rows, 1.0, alone)] == [0.5, 0, 0, 0.5, 0, 0]
    assert [float(row.streams["ce"]) for row in with_imitation(rows[4:], 1.0, alone)] == [0, 0]


def test_mismatched_completions_follow_another_prompt():
    rows = [Row(prompt_ids=(p,), completion_ids=(p, i), mask=(True,) * 2, side=1) for p in range(4) for i in range(2)]
    swapped = mismatched_rows(rows)
    assert [row.completion_ids for row in swapped] == [row.completion_ids for row in rows]
    assert all(row.prompt_ids != (row.completion_ids[0],) for row in swapped)
    assert {row.prompt_ids for row in swapped} == {row.prompt_ids for row in rows}
    # The order of the rows does not matter, nor how many there are of a prompt.
    of = {row.completion_ids: row.prompt_ids for row in swapped}
    assert {row.completion_ids: row.prompt_ids for row in mismatched_rows(rows[:0:-1])}.items() <= of.items()
    assert mismatched_rows(rows[:2]) == []


# Values. ---------------------------------------------------------------------------------------------------------


def critic(**spec):
    return parts("ppo", credit={"scale": "none", "lam": 1.0, **spec}, kl={"coef": 0.0})


def test_the_critic_learns_at_decisions_only():
    items = [
        scored(1.0, (1, 2, 3), mask=SPARSE, values=(0.5, math.nan, 0.25)),
        scored(0.0, (4,), values=(0.75,)),
    ]
    algorithm = critic()
    given = credit(items, algorithm, CreditState(kl_coef=0.0), alone)
    first, second = value_rows(items, given, algorithm, alone)
    assert (first.mask, second.mask) == (SPARSE, (True,))
    close(first.streams["vf"], [1 / 3, 0.0, 1 / 3])
    close(first.streams["returns"], [1.0, 0.0, 1.0])
    close(first.streams["old_values"], [0.5, math.nan, 0.25])
    close(second.streams["returns"], [0.0])
    assert set(first.streams) == {"vf", "returns", "old_values"}


def test_with_turns_the_critic_learns_at_their_first_tokens():
    mask, turns = (True, True, False, True, True), ((0, 2), (3, 5))
    item = scored(1.0, (1, 2, 3, 4, 5), mask=mask, turns=turns, values=(0.5,) * 5)
    algorithm = critic(level="turn")
    given = credit([item], algorithm, CreditState(kl_coef=0.0), alone)
    (row,) = value_rows([item], given, algorithm, alone)
    assert row.mask == (True, False, False, True, False)
    close(row.streams["vf"], [0.5, 0.0, 0.0, 0.5, 0.0])


def test_values_are_read_before_decisions_and_after_what_was_cut_off():
    cut = {"stop": StopReason.LENGTH, "steps": ((0, 1.0),)}
    items = [
        scored(None, (1, 2, 3), mask=SPARSE, **cut),
        scored(1.0, (1, 2, 3), mask=SPARSE, **cut),
        scored(None, (1, 2, 3), mask=SPARSE, steps=((0, 1.0),)),
    ]
    awaiting, judged, ended = history_rows(items, critic())
    assert (len(awaiting.completion_ids), awaiting.mask) == (4, (*SPARSE, True))
    assert awaiting.completion_ids[:3] == (1, 2, 3)
    for row in (judged, ended):
        assert (row.completion_ids, row.mask) == ((1, 2, 3), SPARSE)


def test_float_noise_makes_no_pair():
    alike = [scored(0.3, (1,)), scored(0.1 + 0.2, (2,))]
    assert paired_rows(alike, 0.0, alone) == judged_rows(alike, 0.0, alone) == []


def test_float_noise_does_not_cost_a_sample_its_acceptance():
    algorithm = parts("rejection")
    item = scored(None, (1, 2), steps=tuple((0, 0.1) for _ in range(10)))
    assert item.score.total < 1.0
    assert len(selected_rows([item], algorithm, algorithm.select, 4, alone)) == 1
