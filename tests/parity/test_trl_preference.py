"""Pair losses equal those of TRL 1.16 on the same tensors, in value and gradient.

Where the two differ, both numbers stand.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trl_calls import same, stand_in, value_and_gradient

from prefrl.policy.objective import pair_objective, reward_objective
from prefrl.policy.parts import PairSpec
from prefrl.policy.preference import bradley_terry, dpo
from prefrl.types import Batch

BETA = 0.3
PAIRS = 3
PAIR_LENGTHS = (4, 2, 5, 1, 3, 3)  # three chosen, then three rejected
PAIR_MASK = torch.tensor([[i < n for i in range(5)] for n in PAIR_LENGTHS])
PAIR_ROW = torch.arange(2 * PAIRS).repeat_interleave(torch.tensor(PAIR_LENGTHS))
SIDE = torch.tensor([1] * PAIRS + [-1] * PAIRS)


@pytest.fixture(scope="module")
def trl():
    """TRL's trainers; importing them takes seconds, so only when a test wants them."""
    from trl import DPOTrainer, RewardTrainer

    return SimpleNamespace(DPO=DPOTrainer, Reward=RewardTrainer)


def batch(outputs, row, columns, side=None, label=1.0, margin=None):
    count = int(row.max()) + 1
    side = torch.zeros(count, dtype=torch.long) if side is None else side
    pairs = max(1, int((side > 0).sum()))
    return Batch(
        outputs=outputs,
        row=row,
        streams=columns,
        side=side,
        atom=torch.arange(count) % pairs,
        label=torch.full((count,), label, dtype=outputs.dtype),
        margin=torch.zeros(count, dtype=outputs.dtype) if margin is None else margin.repeat(2),
        weight=torch.full((count,), 1.0 / pairs, dtype=outputs.dtype),
        tie=torch.zeros(count, dtype=outputs.dtype),
        annotator=torch.full((count,), -1),
        rank=torch.zeros(count, dtype=torch.long),
    )


def pair_streams(seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, len(PAIR_ROW), generator=generator, dtype=torch.float64)
    return (2 * noise[0] - 5).requires_grad_(), 2 * noise[1] - 5


def our_dpo(logps, ref, kind, *, smoothing=0.0, pairs=slice(None)):
    one = batch(logps, PAIR_ROW, {"ref_logps": ref}, SIDE, label=1.0 - smoothing)
    if pairs != slice(None):
        one.weight = torch.zeros(2 * PAIRS, dtype=logps.dtype)
        one.weight[pairs] = one.weight[PAIRS:][pairs] = 1.0
    return value_and_gradient(pair_objective(one, PairSpec(loss=kind, beta=BETA))[0], logps)


def their_dpo(trl, logps, ref, kind, *, smoothing=0.0, pairs=slice(None), swapped=False):
    """`DPOTrainer._compute_loss` on the given pairs; `swapped` exchanges chosen and rejected."""

    def laid_out(flat):
        rows = torch.zeros(PAIR_MASK.shape, dtype=flat.dtype).masked_scatter(PAIR_MASK, flat)
        sides = rows[:PAIRS][pairs], rows[PAIRS:][pairs]
        return torch.cat(sides[::-1] if swapped else sides)

    mask = laid_out(torch.ones(len(PAIR_ROW))).bool()
    log_probs, reference = laid_out(logps), laid_out(ref).sum(1).chunk(2)
    nothing = torch.zeros(log_probs.shape)
    model = lambda **_: SimpleNamespace(  # noqa: E731
        log_probs=log_probs, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool()
    )
    trainer = stand_in(
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=BETA,
        label_smoothing=smoothing,
        use_weighting=False,
    )
    # One prompt token comes first; per-token log-probs start at the second position.
    with_prompt = torch.cat([torch.zeros(len(mask), 1, dtype=torch.bool), mask], dim=1).long()
    inputs = {
        "input_ids": torch.zeros(with_prompt.shape, dtype=torch.long),
        "attention_mask": torch.ones(with_prompt.shape, dtype=torch.long),
        "completion_mask": with_prompt,
        "ref_chosen_logps": reference[0],
        "ref_rejected_logps": reference[1],
    }
    return value_and_gradient(trl.DPO._compute_loss(trainer, model, inputs, False), logps)


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
def test_dpo(trl, kind):
    logps, ref = pair_streams()
    same(our_dpo(logps, ref, kind), their_dpo(trl, logps, ref, kind))


@pytest.mark.parametrize("kind", ["sigmoid", "hinge"])
@pytest.mark.parametrize("smoothing", [0.1, 0.3])
def test_label_smoothing_is_the_expected_loss_over_flipped_labels(trl, kind, smoothing):
    logps, ref = pair_streams(1)
    right, wrong = (their_dpo(trl, logps, ref, kind, swapped=swapped) for swapped in (False, True))
    wanted = tuple((1 - smoothing) * a + smoothing * b for a, b in zip(right, wrong, strict=True))
    same(our_dpo(logps, ref, kind, smoothing=smoothing), wanted)


@pytest.mark.parametrize("pair", range(PAIRS))
def test_label_smoothing_of_trl(trl, pair):
    # TRL smooths labels in "aot", which is conservative DPO on a batch of one pair, and in "robust", which is not:
    # that one subtracts the flipped loss, an unbiased estimate of the clean loss that is not bounded below.
    logps, ref = pair_streams(2)
    mine = our_dpo(logps, ref, "sigmoid", smoothing=0.2, pairs=slice(pair, pair + 1))
    same(mine, their_dpo(trl, logps, ref, "aot", smoothing=0.2, pairs=slice(pair, pair + 1)))
    robust = their_dpo(trl, logps, ref, "robust", smoothing=0.2, pairs=slice(pair, pair + 1))
    right, wrong = (
        their_dpo(trl, logps, ref, "sigmoid", pairs=slice(pair, pair + 1), swapped=swap)[0] for swap in (False, True)
    )
    same(mine[0], 0.8 * right + 0.2 * wrong)
    same(robust[0], (0.8 * right - 0.2 * wrong) / 0.6)


def test_ipo(trl):
    # Equation 17 of the IPO paper holds log-probs of whole completions, so ours are summed over tokens. TRL averages
    # them over tokens, which makes the target margin 1 / (2 beta) one per token. On single tokens the two agree.
    logps, ref = pair_streams(3)
    gain = torch.zeros(2 * PAIRS, dtype=torch.float64).index_add(0, PAIR_ROW, (logps - ref).detach())
    lengths = torch.tensor(PAIR_LENGTHS, dtype=torch.float64)
    summed, averaged = gain[:PAIRS] - gain[PAIRS:], gain[:PAIRS] / lengths[:PAIRS] - gain[PAIRS:] / lengths[PAIRS:]
    mine, theirs = our_dpo(logps, ref, "ipo"), their_dpo(trl, logps, ref, "ipo")
    same(mine[0], ((summed - 1 / (2 * BETA)) ** 2).mean())
    same(theirs[0], ((averaged - 1 / (2 * BETA)) ** 2).mean())
    assert abs(float(mine[0] - theirs[0])) > 1
    same(dpo(averaged, torch.ones(PAIRS, dtype=torch.float64), BETA, "ipo").mean(), theirs[0])


@pytest.mark.parametrize("center", [0.0, 0.01])
@pytest.mark.parametrize("with_margin", [False, True])
def test_bradley_terry(trl, with_margin, center):
    generator = torch.Generator().manual_seed(0)
    scores = (3 * torch.randn(2 * PAIRS, generator=generator, dtype=torch.float64)).requires_grad_()
    margin = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    trainer = stand_in(args=SimpleNamespace(center_rewards_coefficient=center or None))
    inputs = {"attention_mask": torch.ones(2 * PAIRS, 4, dtype=torch.long)}
    if with_margin:
        inputs["margin"] = margin
    model = lambda **_: SimpleNamespace(logits=scores[:, None])  # noqa: E731
    wanted = value_and_gradient(trl.Reward.compute_loss(trainer, model, inputs), scores)
    one = batch(scores, torch.arange(2 * PAIRS), {}, SIDE, margin=margin if with_margin else None)
    same(value_and_gradient(reward_objective(one, center)[0], scores), wanted)


def test_soft_labels_of_bradley_terry_are_the_expected_loss(trl):
    scores = torch.tensor([1.5, -0.5], dtype=torch.float64)
    trainer = stand_in(args=SimpleNamespace(center_rewards_coefficient=None))
    inputs = {"attention_mask": torch.ones(2, 1, dtype=torch.long)}
    right, wrong = (
        trl.Reward.compute_loss(trainer, lambda s=s, **_: SimpleNamespace(logits=s[:, None]), dict(inputs))
        for s in (scores, scores.flip(0))
    )
    label, no_margin = (torch.tensor([x], dtype=torch.float64) for x in (0.7, 0.0))
    mine = bradley_terry(scores[:1], scores[1:], label, no_margin)
    same(mine.squeeze(), 0.7 * right + 0.3 * wrong)
