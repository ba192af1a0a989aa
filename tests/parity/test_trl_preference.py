"""Losses on pairs of scores equal those of TRL 1.16 on the same tensors, in value and gradient.

Where the two differ, both numbers stand.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trl_calls import same, stand_in, value_and_gradient

from prefrl.config import LabelConfig
from prefrl.policy.comparison import bradley_terry
from prefrl.policy.judgement import LabelModel
from prefrl.policy.objective import reward_objective
from prefrl.types import Batch

PAIRS = 3
SIDE = torch.tensor([1] * PAIRS + [-1] * PAIRS)


@pytest.fixture(scope="module")
def trl():
    """TRL's trainers; importing them takes seconds, so only when a test wants them."""
    from trl import RewardTrainer

    return SimpleNamespace(Reward=RewardTrainer)


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
    same(value_and_gradient(reward_objective(one, LabelModel(LabelConfig()), center)[0], scores), wanted)


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
