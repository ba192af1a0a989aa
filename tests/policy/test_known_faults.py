"""Faults that policy optimizers are known for, each with the smallest input that shows it and the right value."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from fakes import TablePolicy, TableReward, alone, batch_of, parts, read, scored
from tiny import rollout

from prefrl.errors import RewardError
from prefrl.policy.credit import CreditState, countable, credit
from prefrl.policy.gather import gather
from prefrl.policy.metrics import rollout_metrics, sequence_kl
from prefrl.policy.objective import stream_objective
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.policy.parts import OverlongSpec
from prefrl.policy.rows import weighted_rows
from prefrl.types import Prompt, Row, Score, StopReason

NO_KL = {"coef": 0.0}


def advantages(items, algorithm):
    found = credit(items, algorithm, CreditState(kl_coef=algorithm.kl.coef), alone)
    return [[round(x, 6) for x in a.tolist()] for a in found.advantages]


def updated(rows, algorithm, moved=0.0, dtype=torch.float64):
    """Loss, gradients and metrics of rows whose log-probs have moved by as much from the old ones."""
    old = torch.cat([row.streams["old_logps"][torch.tensor(row.mask)] for row in rows]).to(dtype)
    outputs = (old + moved).requires_grad_()
    loss, sums = stream_objective(batch_of(rows, outputs), algorithm)
    return float(loss.detach()), torch.autograd.grad(loss, outputs)[0], read(sums)


def row(streams, mask):
    return Row(
        prompt_ids=(),
        completion_ids=tuple(range(len(mask))),
        mask=mask,
        streams={name: torch.tensor(values, dtype=torch.float64) for name, values in streams.items()},
    )


# Reduction. ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [[[0, 1]], [[0], [1]], [[1], [0]]])
def test_a_token_mean_that_is_taken_in_each_micro_batch(split):
    # Losses 1, 1, 1, 1 and 5: 9 / 5 over the batch; means of micro-batches would give 3.
    items = [scored(1.0, (1,) * 4), scored(5.0, (1,), group="h")]
    algorithm = parts("reinforce", credit={"baseline": "none"}, reduction="token_mean", group_size=1)
    rows = weighted_rows(items, algorithm, 8, alone)
    losses = [updated([rows[i] for i in part], algorithm)[0] for part in split]
    assert sum(losses) == pytest.approx(1.8)  # every log-prob is -1


@pytest.mark.parametrize("name", ["dr_grpo", "grpo", "dapo", "rloo", "gspo"])
def test_a_sum_over_sequences_that_grows_with_the_batch(name):
    def gradient(copies):
        items = [scored(float(i % 2), (1, 2), group=f"{c}") for c in range(copies) for i in range(2)]
        algorithm = parts(name, kl=NO_KL)
        return float(updated(weighted_rows(items, algorithm, 8, alone), algorithm)[1].clamp(min=0).sum())

    assert gradient(1) > 0
    assert gradient(2) == pytest.approx(gradient(1))


def test_truncated_rows_that_leave_the_numerator_but_not_the_denominator():
    rollouts = [rollout((1,) * 25), rollout((1,) * 5, stop=StopReason.LENGTH)]
    items = countable(rollouts, [Score(value=1.0)] * 2, OverlongSpec(rule="mask"), 30)
    algorithm = parts("reinforce_pp", credit={"scale": "none"}, kl=NO_KL)
    (only,) = weighted_rows(items, algorithm, 30, alone)
    torch.testing.assert_close(only.streams["rl"], torch.full((25,), 1 / 25))


def test_padding_that_enters_the_weight_of_a_sequence():
    # Three tokens weigh the same beside one token and beside twelve.
    for other in (1, 12):
        items = [scored(1.0, (1,) * 3), scored(0.0, (1,) * other)]
        first, _ = weighted_rows(items, parts("dr_grpo", reduction="sequence_mean"), 12, alone)
        torch.testing.assert_close(first.streams["rl"], torch.full((3,), 0.5 / 6))


# Groups. ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.9, 0.35, 0.7, 0.1])
@pytest.mark.parametrize("name", ["grpo", "dapo", "dr_grpo", "rloo"])
def test_float_noise_of_equal_rewards_that_becomes_an_advantage(value, name):
    # Sums of parts in float32, as reward models give them, and exact ones.
    noisy = [float(torch.tensor(value, dtype=torch.float32) + k * 1e-8) for k in range(8)]
    items = [scored(v) for v in noisy]
    assert advantages(items, parts(name, kl=NO_KL)) == [[0.0]] * 8
    metrics = rollout_metrics([s.rollout for s in items], [s.score for s in items])
    assert (metrics["groups/uniform"], metrics["groups/mixed"]) == (1.0, 0.0)


@pytest.mark.parametrize(("others", "odd", "wanted"), [(0.35, 0.0, -0.35), (0.3, 0.9, 0.6)])
def test_a_leave_one_out_spread_that_is_a_rounding_error(others, odd, wanted):
    items = [scored(v) for v in [others] * 7 + [odd]]
    assert advantages(items, parts("rloo", kl=NO_KL))[-1] == [pytest.approx(wanted)]


def test_a_baseline_of_the_first_rollouts_only():
    assert advantages([scored(v) for v in (0.0, 1.0, 1.0, 1.0)], parts("dr_grpo"))[0] == [-0.75]


def test_reordering_that_breaks_groups():
    values = {"a": (1.0, 0.0), "b": (0.2, 0.4, 0.9)}
    items = [scored(v, group=name) for name, group in values.items() for v in group]
    straight = advantages(items, parts("grpo", kl=NO_KL))
    order = [3, 0, 4, 2, 1]
    assert advantages([items[i] for i in order], parts("grpo", kl=NO_KL)) == [straight[i] for i in order]


def test_a_dead_group_that_a_batch_wide_spread_brings_to_life():
    values = [("dead", 0.5), ("dead", 0.5), ("live", 1.0), ("live", 0.0)]
    items = [scored(v, group=g) for g, v in values]
    algorithm = parts("grpo", credit={"scale": "batch_std"}, kl=NO_KL)
    assert advantages(items, algorithm)[:2] == [[0.0], [0.0]]
    metrics = rollout_metrics([s.rollout for s in items], [s.score for s in items])
    assert metrics["groups/uniform"] == 0.5


@pytest.mark.parametrize("broken", [Score.failed("ZeroDivisionError"), Score.failed("timeout")])
def test_a_failed_reward_that_counts_as_zero(broken):
    policy = TablePolicy(answer=lambda prompt, k: (k % 2,))
    scores = iter([Score(value=1.0), Score(value=0.5), broken])
    one = PolicyOptimizer(policy, TableReward(lambda _: next(scores)), parts("dr_grpo", group_size=3))
    metrics = one.step([Prompt(id="p", text="?")], seed=0).metrics
    # The mean .75 of the two that were scored; as a 0 the third would make it .5. The budget is 4.
    assert [r.streams["rl"].item() for r in policy.rows[0]] == [0.25 / 8, -0.25 / 8]
    assert metrics["errors"] == pytest.approx(1 / 3)
    assert metrics["reward/mean"] == 0.75


def test_one_failed_rollout_that_stops_the_step():
    policy = TablePolicy(answer=lambda prompt, k: (k % 2,))
    calls = iter(range(32))
    one = PolicyOptimizer(
        policy,
        TableReward(lambda r: Score.failed("gone") if next(calls) == 5 else Score(value=float(r.completion_ids[0]))),
        parts("grpo", group_size=8, kl=NO_KL),
    )
    one.step([Prompt(id=str(i), text="?") for i in range(4)], seed=0)
    assert len(policy.rows[0]) == 31


def test_a_reward_of_nan_that_drops_its_row_in_silence():
    one = PolicyOptimizer(TablePolicy(), TableReward(lambda _: Score(value=0.0)), parts("dr_grpo"))
    rollouts = [rollout((i % 2,)) for i in range(4)]
    with pytest.raises(RewardError, match=r"nan; expected a finite number"):
        one.learn(rollouts, [Score(value=v) for v in (math.nan, 0.0, 0.5, 0.2)])


def test_replacing_groups_without_end():
    drawn = []

    def sample(prompts, round_):
        drawn.append(len(prompts))
        return [rollout((k,), group=f"{p.id}/{round_}") for p in prompts for k in range(2)]

    prompts = [Prompt(id=str(i), text="?") for i in range(3)]
    found = gather(sample, TableReward(lambda _: Score(value=1.0)), prompts, rounds=2, more=lambda n: prompts[:n])
    assert drawn == [3, 3, 3]
    assert len(found.rollouts) == 6
    assert found.metrics["resample/discarded"] == 1.0


def test_an_empty_answer_whose_log_prob_is_nan():
    rollouts = [rollout((0,)), rollout((1,)), rollout((2,), mask=(False,), logps=(math.nan,))]
    policy = TablePolicy()
    one = PolicyOptimizer(policy, TableReward(lambda _: Score(value=0.0)), parts("dr_grpo"))
    metrics = one.learn(rollouts, [Score(value=v) for v in (1.0, 0.0, 0.0)])
    assert len(policy.rows[0]) == 2
    assert metrics["length/mean"] == pytest.approx(2 / 3)
    assert all(math.isfinite(value) for value in metrics.values())


# Observations. ---------------------------------------------------------------------------------------------------

SPARSE = (True, False, True)


@pytest.mark.parametrize("anything", [0.5, 100.0, -1e9, math.nan])
def test_generalized_advantages_that_leak_through_observations(anything):
    item = scored(None, (1, 2, 3), mask=SPARSE, steps=((2, 1.0),), values=(0.5, anything, 0.5))
    algorithm = parts("ppo", credit={"scale": "none", "lam": 0.5}, kl=NO_KL)
    assert advantages([item], algorithm) == [[0.25, 0.0, 0.5]]


def test_advantages_that_decay_over_a_tools_words():
    # Gamma lambda .5 and a terminal 1: two sampled tokens after the first are a quarter, not a sixteenth.
    item = scored(1.0, (1, 2, 3, 4, 5), mask=(True, True, False, False, True), values=(0.0,) * 5)
    algorithm = parts("ppo", credit={"scale": "none", "lam": 0.5}, kl=NO_KL)
    assert advantages([item], algorithm) == [[0.25, 0.5, 0.0, 0.0, 1.0]]


def test_a_running_return_that_starts_anew_after_an_observation():
    item = scored(1.0, (1,) * 6, mask=(True, True, False, False, True, True))
    algorithm = parts("reinforce_pp", credit={"scale": "none"}, kl=NO_KL)
    assert advantages([item], algorithm) == [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]]


def test_kl_at_observations_that_leaks_into_returns():
    # KL 1 everywhere, coefficient 1, gamma .9. Discount counts decisions, so the first return is -1 - .9;
    # by raw distance between tokens it would be -1 - .729, and with the leak -3.439.
    item = scored(0.0, (1,) * 4, mask=(True, False, False, True), logps=(-1.0,) * 4, ref=(-2.0,) * 4)
    algorithm = parts("reinforce_pp", credit={"scale": "none", "gamma": 0.9}, kl={"coef": 1.0})
    assert advantages([item], algorithm) == [[-1.9, 0.0, 0.0, -1.0]]


def test_a_score_that_is_paid_after_the_end_of_turn():
    # Three tokens, the last one ends the turn: whatever follows, it is paid there and at no observation.
    algorithm = parts("reinforce_pp", credit={"scale": "none", "gamma": 0.5}, kl=NO_KL)
    for tail in (0, 2):
        item = scored(1.0, (1, 2, 3) + (0,) * tail, mask=(True,) * 3 + (False,) * tail)
        assert advantages([item], algorithm) == [[0.25, 0.5, 1.0] + [0.0] * tail]


def test_a_mean_log_ratio_that_counts_observations():
    def gradient(observed):
        streams = {"rl": [1.0, 0.0, 1.0], "old_logps": [-1.0, observed, -2.0], "sampled": [1.0, 0.0, 1.0]}
        streams["ce"] = [0.0, 0.0, 0.0]
        rows = [row(streams, (True,) * 3)]
        outputs = torch.tensor([-1.0001, -2.0, -2.0001], dtype=torch.float64, requires_grad=True)
        loss, _ = stream_objective(batch_of(rows, outputs), parts("gspo", echo=1.0))
        return [float(loss.detach()), *torch.autograd.grad(loss, outputs)[0].tolist()]

    assert gradient(-2.0) == gradient(-6.0) == pytest.approx([-2 * math.exp(-1e-4), *[-math.exp(-1e-4), 0.0] * 2][:4])


def test_kl_and_entropy_that_are_means_over_padding():
    for tail in (0, 50):
        mask = (True, True) + (False,) * tail
        item = scored(0.0, (1,) * len(mask), mask=mask, logps=(-0.5,) * len(mask), ref=(-1.0,) * len(mask))
        rows = weighted_rows([item], parts("reinforce_pp"), 64, alone)
        metrics = updated(rows, parts("reinforce_pp"))[2]
        assert metrics["kl/ref_k1"] == pytest.approx(0.5)
        assert sequence_kl([item], alone) == pytest.approx(1.0)
        assert rollout_metrics([item.rollout], [item.score])["entropy"] == 0.5


# Ratios and bounds. ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "cispo", "gspo", "ctpo", "full_ratio"])
def test_on_policy_samples_whose_gradient_is_scaled_or_zero(name):
    # A weight bound of [0, 1 + high] that is read as [.., high], or a loss that is 0 and looks like no learning.
    items = [scored(1.0, (1, 2)), scored(0.0, (1, 2))]
    algorithm = parts(name, credit={"scale": "none", "baseline": "group_mean"}, kl=NO_KL, overlong={"rule": "keep"})
    rows = weighted_rows(items, algorithm, 8, alone)
    _, gradient, metrics = updated(rows, algorithm)
    wanted = -torch.cat([r.streams["rl"] for r in rows]).double()
    assert bool((wanted != 0).all())
    torch.testing.assert_close(gradient, wanted)
    assert metrics["ratio/mean"] == 1.0
    assert metrics.get("clip/low", 0.0) == metrics.get("clip/high", 0.0) == metrics["kl/sampler_k3"] == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"truncate": 2.0},
        {"clip": {"dual": 3.0}},
        {"clip": {"kind": "weight", "low": 1.0, "high": 4.0}},
    ],
)
def test_a_stale_sample_with_a_negative_advantage_and_no_bound(changes):
    # The learner finds the sample 50 times as likely as its sampler did.
    far = math.log(50.0)
    items = [scored(0.0, (1,), learner=(-1.0 + far,)), scored(1.0, (1,), learner=(-1.0,))]
    algorithm = parts("dr_grpo", **changes)
    if not algorithm.truncate:
        items = [dataclasses.replace(item, learner_logps=None) for item in items]
    rows = weighted_rows(items, algorithm, 1, alone)
    gradient = updated(rows[:1], algorithm, moved=0.0 if algorithm.truncate else far)[1]
    assert 0.0 <= float(gradient[0]) <= 5.0 * 0.25
    plain = parts("dr_grpo")
    assert float(updated(weighted_rows(items, plain, 1, alone)[:1], plain, moved=far)[1][0]) == pytest.approx(50 * 0.25)


def test_a_clipped_token_far_away_that_makes_the_loss_nan():
    rows = [row({"rl": [1.0, -1.0], "old_logps": [-200.0, 0.0]}, (True, True))]
    loss, gradient, _ = updated(rows, parts("grpo"), moved=torch.tensor([199.0, -199.0]), dtype=torch.float32)
    assert loss == pytest.approx(-1.2 + 0.8)
    assert gradient.tolist() == [0.0, 0.0]


# KL and length. --------------------------------------------------------------------------------------------------


def test_kl_that_is_applied_in_reward_and_loss():
    items = [scored(1.0, ref=(-3.0,)), scored(0.0, ref=(-1.0,))]
    in_reward = parts("rloo", kl={"coef": 0.5})
    in_loss = parts("rloo", kl={"coef": 0.5, "place": "loss"})
    assert "ref_kl" not in weighted_rows(items, in_reward, 4, alone)[0].streams
    assert "ref_kl" in weighted_rows(items, in_loss, 4, alone)[0].streams
    assert advantages(items, in_reward) == [[0.0], [0.0]]
    assert advantages(items, in_loss) == [[1.0], [-1.0]]


def test_kl_in_the_loss_without_a_gradient():
    # By itself k1 has the gradient 1 at every token, of mean 0; weighed by the ratio it is k1 + 1.
    streams = {"rl": [0.0], "ref_kl": [1.0], "old_logps": [-1.0], "ref_logps": [-1.5]}
    gradient = updated([row(streams, (True,))], parts("grpo", kl={"coef": 1.0, "estimator": "k1"}))[1]
    assert float(gradient) == pytest.approx(0.5 + 1.0)


def test_overlong_settings_that_act_though_disabled():
    cut = rollout((1, 2), stop=StopReason.LENGTH)
    for spec in (OverlongSpec(), OverlongSpec(buffer=1.0, penalty=9.0)):
        (item,) = countable([cut], [Score(value=0.5)], spec, 2)
        assert item.score == Score(value=0.5)


def test_truncation_that_is_zeroed_unasked():
    rollouts = [rollout((k,), stop=StopReason.LENGTH) for k in (0, 1)]
    scores = [Score(value=0.53), Score(value=0.2)]
    assert [s.score.value for s in countable(rollouts, scores, OverlongSpec(), 1)] == [0.53, 0.2]
    assert rollout_metrics(rollouts, scores)["stop/length"] == 1.0


def test_a_run_in_which_every_answer_is_cut_off_and_nothing_is_said():
    policy = TablePolicy()
    one = PolicyOptimizer(policy, TableReward(lambda _: Score(value=0.0)), parts("dapo", overlong={"rule": "mask"}))
    cut = [rollout((k,), stop=StopReason.LENGTH) for k in (0, 1)]
    with pytest.raises(RewardError, match=r"max_new_tokens"):
        one.learn(cut, [Score(value=0.0)] * 2)
    assert policy.version == 0
