"""Ties that a reward model predicts, and what the spread of its members is worth."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from prefrl.config import EnsembleConfig, LabelConfig, RewardConfig, RewardModelConfig
from prefrl.model.ensemble import load_reward_scorer
from prefrl.model.reward_scorer import Judged
from prefrl.policy.judgement import LabelModel
from prefrl.recipes import reward
from prefrl.recipes.pairs import reward_rows
from prefrl.recipes.reward_figures import ensemble_figures, tie_figures
from prefrl.types import Completion, Pair, Prompt


def pair(i, **more):
    return Pair(prompt=Prompt(id=str(i), text="q"), chosen=Completion(text="a"), rejected=Completion(text="b"), **more)


def judged(*scores):
    return Judged(scores=scores, tokens=1, cut=False)


def test_accuracy_by_spread_by_hand():
    """Gaps of two members; a pair that is turned round counts as its chosen side has it, ties and the unscored not."""
    zero, ones = judged(0.0, 0.0), [pair(i) for i in range(3)]
    sides = [(judged(3.0, 1.0), zero), (judged(0.5, 0.5), zero), (judged(1.0, -5.0), zero)]  # spreads 1, 0 and 3
    others = [(judged(), zero), (judged(9.0, -9.0), zero), (judged(2.0, -6.0), zero)]
    pairs = [*ones, pair(3), pair(4, tie=1.0), pair(5, label=0.0)]
    found = ensemble_figures([*sides, *others], pairs)["ensemble"]
    # By spread: right 0, right 1, wrong 3, and 4, which is right as the rejected side is the better one.
    assert found == {"members": 2, "spread": 2.0, "accuracy_by_spread": [[1, 1], [1, 1], [1, 2]]}
    assert ensemble_figures([(judged(1.0), judged(0.0))], pairs[:1]) == {} == ensemble_figures([], [])


def test_predicted_and_observed_ties_by_hand():
    """Davidson at nu = 1: a tie has the odds exp(0) to exp(z / 2) + exp(-z / 2), so 1/3 at a gap of 0."""
    labels = LabelModel(LabelConfig(ties="davidson", tie_parameter=1.0))
    sides = [(judged(1.0), judged(1.0)), (judged(0.0), judged(2.0)), (judged(), judged(2.0))]
    pairs = [pair(0, tie=1.0), pair(1), pair(2, tie=1.0)]
    found = tie_figures(sides, pairs, labels)["tie_shares"]
    wanted = (1 / 3 + 1 / (1 + math.exp(1.0) + math.exp(-1.0))) / 2
    assert found == {"predicted": pytest.approx(wanted), "observed": 0.5, "pairs": 2}
    assert tie_figures(sides, pairs, LabelModel(LabelConfig())) == {}


def test_members_are_compared_from_the_same_level(model, tmp_path):
    """A minimum over members must not be that of whoever happens to score everything low."""
    pairs = [
        Pair(
            prompt=Prompt(id=str(i), messages=({"role": "user", "content": f"is it {i}?"},)),
            chosen=Completion(text=f"yes {i}"),
            rejected=Completion(text=f"no, not {i * i}"),
        )
        for i in range(24)
    ]
    config = RewardConfig(model=RewardModelConfig(name=model), ensemble=EnsembleConfig(members=3), max_tokens=200)
    made = reward.new_model(config.model, 0, config.ensemble)
    with torch.no_grad():
        made.output_layer.weight.mul_(20)
    raw = made.member_scores([row for rows in reward_rows(pairs, made) for row in rows])
    assert float(raw.mean(0).std()) > 0.05
    made.record = replace(made.record, max_tokens=200)
    reward.finish(made, pairs, config)
    texts = [(p.prompt, c) for p in pairs for c in (p.chosen, p.rejected)]
    found = made.judge([p for p, _ in texts], [c for _, c in texts])
    served = torch.tensor([judged.scores for judged in found])
    assert served.mean(0).tolist() == pytest.approx([float(served.mean())] * 3, abs=1e-5)
    assert served.mean(1).tolist() == pytest.approx((raw.mean(1) / made.record.temperature).tolist(), abs=1e-5)
    made.save(tmp_path / "saved")
    again = load_reward_scorer(str(tmp_path / "saved"))
    assert again.record == made.record and len(again.record.offsets) == 3
