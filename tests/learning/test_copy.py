"""Every algorithm teaches a tiny transformer from random weights to copy three digits, from reward alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from tiny import digit_tokenizer, llama

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.types import Prompt, Score

STEPS = 240


@dataclass
class Copied:
    """Share of the prompt's three digits that stand at their place."""

    def score(self, rollouts):
        scores = []
        for r in rollouts:
            right = sum(a == b for a, b in zip(r.text, r.prompt.text[:3], strict=False))
            scores.append(Score(value=right / 3))
        return scores

    def update(self, rollouts, scores):
        return {}


def learn(name, seed, reward, steps):
    """Mean reward of the first and the last ten steps."""
    tokenizer = digit_tokenizer()
    policy = LanguageModel(llama(len(tokenizer), hidden=64, seed=seed), tokenizer, name="tiny")
    algorithm = resolve({"name": name, "group_size": 8} | ({} if ALGORITHMS[name].pairs else {"kl": {"coef": 0.0}}))
    engine = Engine(
        policy,
        ModelConfig(lr=1e-3),
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=3),
        reference="reference" in algorithm.needs,
    )
    optimizer = PolicyOptimizer(engine, reward, algorithm)
    rng = random.Random(seed)
    curve = []
    for step in range(steps):
        digits = ["".join(rng.choice("0123456789") for _ in range(3)) for _ in range(16)]
        prompts = [Prompt(id=str(i), text=f"{d}=") for i, d in enumerate(digits)]
        curve.append(optimizer.step(prompts, seed=seed * 100_000 + step).metrics["reward/mean"])
    return sum(curve[:10]) / 10, sum(curve[-10:]) / 10


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_copy(name, seed):
    first, last = learn(name, seed, Copied(), STEPS)
    assert first < 0.15
    assert last >= 0.9, f"{name}, seed {seed}: reward {last:.3f}"


def test_without_reward_nothing_is_learnt():
    class Constant(Copied):
        def score(self, rollouts):
            return [Score(value=0.5) for _ in rollouts]

    tokenizer = digit_tokenizer()
    policy = LanguageModel(llama(len(tokenizer)), tokenizer, name="tiny")
    before = [p.detach().clone() for p in policy.module.parameters()]
    algorithm = resolve({"name": "grpo", "kl": {"coef": 0.0}})
    engine = Engine(policy, ModelConfig(lr=2e-3), sampler=policy, sampling=SamplingConfig(max_new_tokens=3))
    metrics = PolicyOptimizer(engine, Constant(), algorithm).step([Prompt(id="a", text="123=")], seed=0).metrics
    assert metrics["groups/uniform"] == 1.0
    assert metrics["grad_norm"] == 0.0
    assert all((a == b).all() for a, b in zip(before, policy.module.parameters(), strict=True))
