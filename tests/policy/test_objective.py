from __future__ import annotations

import math

import pytest
import torch
from fakes import alone, batch_of, parts, read, scored

from prefrl.policy.algorithms import ALGORITHMS
from prefrl.policy.objective import (
    implicit_scores,
    objective_of,
    pair_objective,
    stream_objective,
    supervised_objective,
    value_objective,
)
from prefrl.policy.parts import PairSpec
from prefrl.policy.rows import weighted_rows
from prefrl.types import Row

STREAMED = [name for name, row in ALGORITHMS.items() if row.pairs is None]


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def row(n=1, mask=None, **fields):
    """A row of n tokens; `streams` come as lists of numbers."""
    streams = {name: numbers(*values) for name, values in fields.pop("streams", {}).items()}
    return Row(prompt_ids=(5,), completion_ids=tuple(range(n)), mask=mask or (True,) * n, streams=streams, **fields)


def differentiated(rows, outputs, algorithm, **extras):
    """Loss, its gradient with respect to the outputs and to every extra, and the metrics as read."""
    outputs = numbers(*outputs).requires_grad_()
    extras = {name: numbers(*values).requires_grad_() for name, values in extras.items()}
    loss, sums = stream_objective(batch_of(rows, outputs, extras), algorithm)
    gradients = torch.autograd.grad(loss, [outputs, *extras.values()], allow_unused=True)
    return float(loss.detach()), [None if g is None else g.tolist() for g in gradients], read(sums)


# The policy gradient. --------------------------------------------------------------------------------------------


def test_without_a_ratio_the_old_log_probs_do_not_matter():
    loss, (gradient,), _ = differentiated(
        [row(2, streams={"rl": [0.5, -2.0], "old_logps": [-9.0, 9.0]})], [-1.0, -3.0], parts("reinforce")
    )
    assert loss == pytest.approx(0.5 - 6.0)
    assert gradient == [-0.5, 2.0]


@pytest.mark.parametrize(
    ("ratio", "weights"),
    [
        ("token", [1.5, 2.0, 0.5]),
        ("cumulative", [1.5, 3.0, 1.5]),
        ("sequence", [1.5, 1.5, 1.5]),
        ("sequence_mean", [1.5 ** (1 / 3)] * 3),
    ],
)
def test_each_ratio_weighs_each_token(ratio, weights):
    old = numbers(-1.0, -2.0, -3.0)
    rows = [row(3, streams={"rl": [1.0, 1.0, -1.0], "old_logps": old.tolist()})]
    now = (old + numbers(1.5, 2.0, 0.5).log()).tolist()
    loss, (gradient,), metrics = differentiated(rows, now, parts("full_ratio", ratio=ratio))
    assert gradient == pytest.approx([-weights[0], -weights[1], weights[2]])
    assert loss == pytest.approx(sum(gradient))
    assert metrics["ratio/max"] == pytest.approx(max(weights))
    assert metrics["ratio/mean"] == pytest.approx(sum(weights) / 3)


def cumulative_row(log_ratios, mask, rl, **streams):
    """Old log-probs of -1 everywhere, and the log-probs that have these log-ratios at sampled tokens."""
    streams = {"rl": rl, "old_logps": [-1.0] * len(mask), **streams}
    return row(len(mask), mask, streams=streams), [-1.0 + x for x in log_ratios]


def test_widening_bounds_count_sampled_tokens():
    # At the second sampled token the bound is .05 sqrt(2) = .0707, however many observations lie between.
    cumulative, logps = cumulative_row([0.04, 0.05], (True, False, False, True), [1.0, 0.0, 0.0, 1.0])
    _, (gradient,), metrics = differentiated([cumulative], logps, parts("ctpo"))
    assert gradient == pytest.approx([-math.exp(0.04), 0.0])
    assert metrics["clip/high"] == 0.5
    cumulative, logps = cumulative_row([0.04, 0.03], (True, False, False, True), [1.0, 0.0, 0.0, 1.0])
    _, (gradient,), _ = differentiated([cumulative], logps, parts("ctpo"))
    assert gradient == pytest.approx([-math.exp(0.04), -math.exp(0.07)])


def test_observations_that_are_learnt_do_not_count_as_sampled_tokens():
    streams = {"sampled": [1.0, 0.0, 0.0, 1.0], "ce": [0.0, 0.25, 0.25, 0.0]}
    cumulative, logps = cumulative_row([0.04, 5.0, 5.0, 0.05], (True,) * 4, [1.0, 0.0, 0.0, 1.0], **streams)
    _, (gradient,), metrics = differentiated([cumulative], logps, parts("ctpo", echo=0.5))
    assert gradient == pytest.approx([-math.exp(0.04), -0.25, -0.25, 0.0])
    assert metrics["clip/high"] == 0.5
    assert metrics["ce"] == pytest.approx(-4.0)


@pytest.mark.parametrize(("log_ratio", "weight"), [(-0.03, 0.0), (-0.02, math.exp(-0.02)), (0.04, math.exp(0.04))])
def test_widening_bounds_of_a_bad_first_token(log_ratio, weight):
    cumulative, logps = cumulative_row([log_ratio], (True,), [-1.0])
    _, (gradient,), _ = differentiated([cumulative], logps, parts("ctpo"))
    assert gradient == pytest.approx([weight])


def test_the_second_bound_widens_too():
    # Cumulative .06 at both tokens: past exp(.05) at the first, below exp(.05 sqrt 2) at the second.
    cumulative, logps = cumulative_row([0.06, 0.0], (True, True), [-1.0, -1.0])
    loss, (gradient,), metrics = differentiated([cumulative], logps, parts("ctpo"))
    assert gradient == pytest.approx([0.0, math.exp(0.06)])
    assert loss == pytest.approx(math.exp(0.05) + math.exp(0.06))
    assert metrics["clip/dual"] == 0.5


def test_the_second_bound_of_a_plain_ratio():
    rows = [row(2, streams={"rl": [-1.0, -1.0], "old_logps": [0.0, 0.0]})]
    loss, (gradient,), _ = differentiated(rows, [math.log(5.0), math.log(2.0)], parts("dr_grpo", clip={"dual": 3}))
    assert loss == pytest.approx(3.0 + 2.0)
    assert gradient == pytest.approx([0.0, 2.0])


# The other streams. ----------------------------------------------------------------------------------------------


def test_kl_in_the_loss():
    # One token, on policy: the gradient of ratio * k3 is k3 + dk3 = (e^u - u - 1) + (1 - e^u) = -u.
    rows = [row(1, streams={"rl": [0.0], "ref_kl": [0.4], "old_logps": [-1.0], "ref_logps": [-1.5]})]
    loss, (gradient,), metrics = differentiated(rows, [-1.0], parts("grpo"))
    k3 = math.exp(-0.5) + 0.5 - 1
    assert loss == pytest.approx(0.4 * k3)
    assert gradient == pytest.approx([0.4 * 0.5])
    assert metrics["kl/ref_k1"] == pytest.approx(0.5)
    assert metrics["kl/ref_k2"] == pytest.approx(0.125)
    assert metrics["kl/ref_k3"] == pytest.approx(k3)


def test_the_entropy_bonus_raises_entropy():
    rows = [row(2, streams={"rl": [0.0, 0.0], "entropy": [0.1, 0.2], "old_logps": [-1.0, -1.0]})]
    loss, (_, gradient), metrics = differentiated(rows, [-1.0, -1.0], parts("dr_grpo", entropy=1.0), entropy=[0.5, 0.7])
    assert loss == pytest.approx(-0.1 * 0.5 - 0.2 * 0.7)
    assert gradient == [-0.1, -0.2]
    assert metrics["entropy/exact"] == pytest.approx(0.6)


def test_the_kl_to_a_teacher():
    rows = [row(2, streams={"rl": [0.0, 0.0], "teacher_kl": [0.5, 0.25]})]
    loss, (_, gradient), metrics = differentiated(rows, [-1.0, -1.0], parts("opd"), teacher_kl=[0.2, 0.4])
    assert loss == pytest.approx(0.2)
    assert gradient == [0.5, 0.25]
    assert metrics["kl/teacher"] == pytest.approx(0.3)


def test_extras_at_observations_are_left_out():
    streams = {"rl": [0.0] * 2, "entropy": [0.5] * 2, "teacher_kl": [0.5] * 2, "sampled": [1.0, 0.0], "ce": [0.0, 0.1]}
    _, (outputs, *gradients), _ = differentiated(
        [row(2, streams=streams)], [-1.0, -1.0], parts("opd", echo=0.1), entropy=[0.2, 0.2], teacher_kl=[0.2, 0.2]
    )
    assert outputs == [0.0, -0.1]
    assert gradients == [[-0.5, 0.0], [0.5, 0.0]]


def test_before_any_update_nothing_is_clipped_and_nothing_drifts():
    rows = [row(3, streams={"rl": [1.0, -1.0, 1.0], "old_logps": [-1.0, -2.0, -3.0], "ref_logps": [-1.0, -2.0, -3.0]})]
    for name in ("grpo", "cispo", "gspo", "ctpo", "ppo"):
        _, _, metrics = differentiated(rows, [-1.0, -2.0, -3.0], parts(name))
        quiet = {n: v for n, v in metrics.items() if n.startswith(("clip/", "kl/"))}
        assert set(quiet.values()) == {0.0}
        assert metrics["ratio/mean"] == metrics["ratio/max"] == metrics["ratio/min"] == 1.0


def test_drift_from_the_sampler_by_all_estimators():
    # u = log learner - log sampler = -.5 and 0.
    rows = [row(2, streams={"rl": [0.0, 0.0], "old_logps": [-1.0, -2.0]})]
    _, _, metrics = differentiated(rows, [-1.5, -2.0], parts("dr_grpo"))
    assert metrics["kl/sampler_k1"] == pytest.approx(0.25)
    assert metrics["kl/sampler_k2"] == pytest.approx(0.0625)
    assert metrics["kl/sampler_k3"] == pytest.approx((math.exp(-0.5) - 0.5) / 2)


# Splits. ---------------------------------------------------------------------------------------------------------


def batch_for(name):
    """Ragged rollouts of two groups with observations between, and log-probs that have moved since."""
    masks = [(True, False, True), (True,), (True, True, False, True, True), (True, True)]
    items = [
        scored(float(i), (1,) * len(m), mask=m, group="ab"[i % 2], ref=(-1.5,) * len(m), values=(0.5,) * len(m))
        for i, m in enumerate(masks)
    ]
    algorithm = parts(name)
    rows = weighted_rows(items, algorithm, 8, alone)
    generator = torch.Generator().manual_seed(0)
    outputs = [-1.0 + 0.3 * torch.randn(sum(m), generator=generator, dtype=torch.float64) for m in masks]
    extras = [
        {e: torch.rand(sum(m), generator=generator, dtype=torch.float64) for e in algorithm.extras} for m in masks
    ]
    return algorithm, rows, outputs, extras


@pytest.mark.parametrize("name", [name for name in STREAMED if name != "rejection"])
def test_no_split_of_the_rows_changes_loss_or_gradient(name):
    algorithm, rows, outputs, extras = batch_for(name)

    def total(split):
        leaves = [o.clone().requires_grad_() for o in outputs]
        losses = []
        for part in split:
            more = {e: torch.cat([extras[i][e] for i in part]) for e in algorithm.extras}
            batch = batch_of([rows[i] for i in part], torch.cat([leaves[i] for i in part]), more)
            losses.append(objective_of(algorithm)(batch)[0])
        loss = sum(losses)
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    whole = total([[0, 1, 2, 3]])
    assert any(bool(gradient.any()) for gradient in whole[1:])
    for split in ([[0], [1], [2], [3]], [[3, 1], [0, 2]], [[2, 0, 3], [1]]):
        torch.testing.assert_close(total(split), whole, atol=1e-7, rtol=1e-6)


# Values. ---------------------------------------------------------------------------------------------------------


def test_the_value_loss_is_a_mean_and_the_metrics_count_decisions():
    streams = {"vf": [0.25, 0.25], "returns": [1.0, 1.0], "old_values": [0.5, 0.5]}
    outputs = numbers(0.6, 0.1).requires_grad_()
    loss, sums = value_objective(batch_of([row(2, streams=streams)], outputs), 0.2)
    assert float(loss.detach()) == pytest.approx(0.25 * (0.16 + 0.81))
    assert torch.autograd.grad(loss, outputs)[0].tolist() == pytest.approx([-0.2, -0.45])
    assert read(sums) == {"value": pytest.approx(0.35), "clip": 0.5}


def test_without_a_bound_no_value_is_clipped():
    streams = {"vf": [1.0], "returns": [1.0], "old_values": [0.5]}
    loss, sums = value_objective(batch_of([row(1, streams=streams)], numbers(3.0)), 0.0)
    assert float(loss) == 4.0
    assert read(sums)["clip"] == 0.0


# Pairs. ----------------------------------------------------------------------------------------------------------


def pair(label=1.0, weight=1.0, margin=0.0, atom=0, ref=((-1.0, -1.0), (-2.0,))):
    """A chosen row of two tokens and a rejected one of a single token."""
    common = {"label": label, "weight": weight, "margin": margin, "atom": atom}
    return [
        row(2, side=1, streams={"ref_logps": ref[0]}, **common),
        row(1, side=-1, streams={"ref_logps": ref[1]}, **common),
    ]


def test_pairs_start_at_log_two_and_pull_apart():
    outputs = numbers(-1.0, -1.0, -2.0).requires_grad_()
    loss, sums = pair_objective(batch_of(pair(), outputs), PairSpec(beta=0.4))
    assert float(loss.detach()) == pytest.approx(math.log(2))
    # beta sigmoid(-margin) on every token of the chosen, against it on the rejected.
    assert torch.autograd.grad(loss, outputs)[0].tolist() == pytest.approx([-0.2, -0.2, 0.2])
    assert read(sums) == {"accuracy": 0.5, "margin": 0.0, "chosen_logp": -2.0, "rejected_logp": -2.0}


def test_pair_metrics_by_hand():
    # Gains .5 and -.25 against the reference: margin .75, times beta.
    loss, sums = pair_objective(batch_of(pair(), numbers(-0.75, -0.75, -2.25)), PairSpec(beta=0.4))
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-0.3)))
    wanted = {"accuracy": 1.0, "margin": 0.3, "chosen_logp": -1.5, "rejected_logp": -2.25}
    assert read(sums) == pytest.approx(wanted)


def test_labels_and_weights_of_pairs():
    rows = pair(label=0.9, weight=0.25) + pair(atom=1, weight=0.5)
    loss, _ = pair_objective(batch_of(rows, numbers(-0.75, -0.75, -2.25, -1.0, -1.0, -2.0)), PairSpec(beta=0.4))
    up, down = math.log(1 + math.exp(-0.3)), math.log(1 + math.exp(0.3))
    assert float(loss) == pytest.approx(0.25 * (0.9 * up + 0.1 * down) + 0.5 * math.log(2))


def test_metrics_go_by_the_label_and_leave_ties_out():
    # Margins of .75 each; the second pair says that its rejected side is the better one, the third nothing.
    rows = pair() + pair(label=0.2, atom=1, weight=9.0) + pair(label=0.5, atom=2)
    _, sums = pair_objective(batch_of(rows, numbers(*[-0.75, -0.75, -2.25] * 3)), PairSpec(beta=0.4))
    assert {name: float(count) for name, (_, count) in sums.items()}["margin"] == 2.0
    assert read(sums)["accuracy"] == 0.5
    assert read(sums)["margin"] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("kind", ["sigmoid", "squared", "hinge"])
def test_gradcheck_of_pair_losses(kind):
    rows = pair(label=0.9) + pair(atom=1, weight=0.5)
    outputs = numbers(-0.7, -0.4, -2.6, -1.2, -1.1, -1.9).requires_grad_()
    spec = PairSpec(loss=kind, beta=0.3)
    assert torch.autograd.gradcheck(lambda x: pair_objective(batch_of(rows, x), spec)[0], (outputs,))


@pytest.mark.parametrize(
    ("spec", "scores"),
    [
        ({}, (0.5, -0.25)),
        ({"average": True}, (0.25, -0.25)),
        ({"divergence": "forward_kl"}, (1 - math.exp(-0.5), 1 - math.exp(0.25))),
        ({"divergence": "forward_kl", "average": True}, ((1 - math.exp(-0.5)) / 2, 1 - math.exp(0.25))),
        ({"ld_alpha": 0.4}, (0.35, -0.25)),
        ({"score": "log_prob"}, (-1.5, -2.25)),
        ({"score": "log_prob", "average": True}, (-0.75, -2.25)),
        ({"score": "log_prob", "average": True, "ld_alpha": 0.4}, (-0.525, -2.25)),
        (
            {"score": "log_odds", "average": True},
            (-0.75 - math.log(1 - math.exp(-0.75)), -2.25 - math.log(1 - math.exp(-2.25))),
        ),
    ],
)
def test_implicit_scores(spec, scores):
    # Gains of .25 on both tokens of the chosen, and of -.25 on the rejected one's only token.
    batch = batch_of(pair(), numbers(-0.75, -0.75, -2.25))
    assert implicit_scores(batch, PairSpec(**spec)).tolist() == pytest.approx(scores)


def test_absolute_log_probs_are_whole_whatever_the_score_is():
    spec = PairSpec(score="log_odds", average=True, ld_alpha=0.0)
    _, sums = pair_objective(batch_of(pair(), numbers(-0.75, -0.75, -2.25)), spec)
    found = read(sums)
    assert (found["chosen_logp"], found["rejected_logp"]) == (-1.5, -2.25)


def test_an_sft_term_beside_a_weighed_pair_loss():
    rows = pair()
    for one, ce in zip(rows, ([0.5, 0.5], [0.0]), strict=True):
        one.streams["ce"] = numbers(*ce)
    outputs = numbers(-1.0, -1.0, -2.0).requires_grad_()
    loss, _ = pair_objective(batch_of(rows, outputs), PairSpec(beta=0.4, coef=0.1))
    assert float(loss.detach()) == pytest.approx(0.1 * math.log(2) + 1.0)
    assert torch.autograd.grad(loss, outputs)[0].tolist() == pytest.approx([-0.52, -0.52, 0.02])


def judged(side, logp, *, ref=-1.0, label=1.0, weight=1.0, atom=0):
    return row(1, side=side, streams={"ref_logps": [ref]}, label=label, weight=weight, atom=atom), logp


def test_completions_judged_one_by_one():
    rows, outputs = zip(
        judged(1, -0.5, weight=0.25),
        judged(-1, -3.0, weight=0.25, atom=1),
        judged(1, -1.0, label=0.9, weight=0.5, atom=2),
        strict=True,
    )
    spec = PairSpec(loss="prospect", beta=0.4, desirable=2.0, undesirable=0.5)
    loss, sums = pair_objective(batch_of(rows, numbers(*outputs)), spec, 0.3)

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    # Log-ratios .5, -2 and 0; less z0: .2, -2.3 and -.3.
    good, bad = 2.0 * sigmoid(-0.4 * 0.2), 0.5 * sigmoid(-0.4 * 2.3)
    doubtful = 0.9 * 2.0 * sigmoid(0.4 * 0.3) + 0.1 * 0.5 * sigmoid(-0.4 * 0.3)
    assert float(loss) == pytest.approx(0.25 * good + 0.25 * bad + 0.5 * doubtful)
    # Two of three are on their side of z0, by .2, 2.3 and -.3.
    wanted = {"accuracy": 2 / 3, "margin": 0.4 * 2.2 / 3, "chosen_logp": -0.75, "rejected_logp": -3.0}
    assert read(sums) == pytest.approx(wanted)


def test_judged_completions_of_one_kind_alone():
    rows, outputs = zip(judged(-1, -3.0), strict=True)
    loss, sums = pair_objective(batch_of(rows, numbers(*outputs)), PairSpec(loss="prospect"))
    assert float(loss) == pytest.approx(1 / (1 + math.exp(0.2)))
    assert read(sums)["chosen_logp"] == 0.0


# Supervision. ----------------------------------------------------------------------------------------------------


def test_supervision_is_a_weighted_sum():
    outputs = numbers(-1.0, -3.0).requires_grad_()
    loss, sums = supervised_objective(batch_of([row(2, streams={"ce": [0.5, 0.25]})], outputs))
    assert float(loss.detach()) == pytest.approx(1.25)
    assert torch.autograd.grad(loss, outputs)[0].tolist() == [-0.5, -0.25]
    assert read(sums) == {"nll": 2.0}


def test_selected_samples_are_learnt_by_cross_entropy():
    rows = [row(2, streams={"ce": [0.5, 0.5], "old_logps": [-9.0, -9.0]})]
    loss, (gradient,), metrics = differentiated(rows, [-1.0, -3.0], parts("rejection"))
    assert loss == pytest.approx(2.0)
    assert gradient == [-0.5, -0.5]
    assert metrics["ce"] == pytest.approx(2.0)


# Gradients against finite differences. ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [parts("reinforce"), parts("dr_grpo"), parts("grpo"), parts("full_ratio", ratio="token"), parts("rejection")],
    ids=lambda algorithm: algorithm.name,
)
def test_gradcheck_of_all_streams(algorithm):
    # Log-ratios .1, -.1 lie inside the bounds, .5, -.6 beyond them.
    old = numbers(-1.0, -1.2, -0.8, -1.5)
    streams = {
        "old_logps": old.tolist(),
        "ref_logps": [-1.1, -1.0, -0.9, -1.2],
        "ref_kl": [0.1] * 4,
        "entropy": [0.2] * 4,
        "teacher_kl": [0.3] * 4,
        "ce": [0.1, 0.2, 0.3, 0.4],
    }
    rows = [row(4, streams={"rl": [0.5, -1.0, 2.0, 0.25], **streams})]
    now = (old + numbers(0.1, -0.1, 0.5, -0.6)).requires_grad_()
    entropy, teacher = numbers(0.5, 0.6, 0.7, 0.8).requires_grad_(), numbers(0.1, 0.2, 0.3, 0.4).requires_grad_()

    def loss(x, entropy, teacher):
        return stream_objective(batch_of(rows, x, {"entropy": entropy, "teacher_kl": teacher}), algorithm)[0]

    assert torch.autograd.gradcheck(loss, (now, entropy, teacher))


def test_with_truncated_weights_drift_is_still_that_from_the_sampler():
    items = [scored(value, (1,), learner=(-1.5,)) for value in (1.0, 0.0)]
    algorithm = parts("dr_grpo", truncate=2.0)
    rows = weighted_rows(items, algorithm, 4, alone)
    _, sums = stream_objective(batch_of(rows, torch.tensor([-1.5, -1.5])), algorithm)
    assert read(sums)["kl/sampler_k1"] == pytest.approx(0.5)
