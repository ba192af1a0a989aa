"""Samples that are four updates old: bounded ratios keep learning, taking them for fresh ones does not."""

from __future__ import annotations

import random
from collections import deque

import pytest
from copying import ends, fresh, optimizer_of, prompts

LAG = 4
LR = 3e-3  # large enough for four updates to matter
BOUNDED = {
    "ppo clip": {"name": "grpo"},
    "weight": {"name": "cispo"},
    "sequence mean": {"name": "gspo", "clip": {"low": 0.1, "high": 0.1}},
    "cumulative": {"name": "ctpo", "clip": {"low": 0.2, "high": 0.2, "dual": 0.3}},
}


def learn(spec, seed, steps=160):
    """Mean reward of every step, each learnt `LAG` updates after it was sampled, and the last metrics."""
    optimizer = optimizer_of({**spec, "kl": {"coef": 0.0}}, fresh(seed), lr=LR)
    rng, waiting, curve, metrics = random.Random(seed), deque(), [], {}
    for step in range(steps):
        rollouts = optimizer.policy.sample(prompts(rng), 8, seed=seed * 100_000 + step)
        scores = optimizer.reward.score(rollouts)
        curve.append(sum(score.total for score in scores) / len(scores))
        waiting.append((rollouts, scores))
        if len(waiting) > LAG:
            metrics = optimizer.learn(*waiting.popleft())
    return curve, metrics


@pytest.mark.parametrize("spec", BOUNDED.values(), ids=BOUNDED)
def test_bounded_ratios_learn(spec):
    curve, metrics = learn(spec, seed=0)
    assert metrics["staleness/mean"] == metrics["staleness/max"] == LAG
    first, last = ends(curve)
    assert first < 0.15
    assert last >= 0.7


def test_taken_for_fresh_they_break_learning():
    curve, _ = learn({"name": "grpo", "ratio": "none", "clip": {"kind": "none"}}, seed=0)
    assert ends(curve)[1] < 0.5
