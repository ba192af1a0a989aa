"""Most training prompts are solved already: retiring them leaves the steps to the others."""

from __future__ import annotations

import random

import pytest
from copying import fresh

from prefrl.config import CurriculumConfig, ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.recipes.feed import Feed, Watched
from prefrl.types import Prompt, Row, Score

SAMPLING = SamplingConfig(max_new_tokens=3)
RARE = set("789")
NUMBERS = [f"{number:03d}" for number in range(1000)]
EASY = [name for name in NUMBERS if not set(name) & RARE]  # three digits that the policy knows
HARD = [name for name in NUMBERS if sum(digit in RARE for digit in name) >= 2]  # digits it has hardly seen


class Exact:
    """1 for a completion that is the prompt's three digits, else 0."""

    def score(self, rollouts):
        return [Score(value=float(r.text == r.prompt.id)) for r in rollouts]

    def update(self, rollouts, scores):
        return {}


def prompts_of(names):
    return [Prompt(id=name, text=f"{name}=") for name in names]


def warmed(seed):
    """A policy that copies what is easy and little of what is hard."""
    policy = fresh(seed)
    engine = Engine(policy, ModelConfig(lr=2e-3))
    rng = random.Random(seed)
    for _ in range(60):
        encoded = [policy.encode(prompt) for prompt in prompts_of(rng.choices(EASY, k=32) + rng.choices(NUMBERS, k=2))]
        learn_completions(engine, [Row(prompt_ids=p, completion_ids=p[:3], mask=(True,) * 3) for p in encoded])
    return policy


def success(policy, names):
    rollouts = policy.sample(prompts_of(names), 2, SAMPLING, seed=7)
    return sum(score.total for score in Exact().score(rollouts)) / len(rollouts)


def train(seed, algorithm, **curriculum):
    """Success on held-out hard and easy prompts after 150 steps, and the tokens that were sampled for it."""
    policy, rng = warmed(seed), random.Random(seed)
    easy, hard = rng.sample(EASY, len(EASY)), rng.sample(HARD, len(HARD))
    feed = Feed(prompts_of(easy[:160] + hard[:40]), 8, seed, CurriculumConfig(**curriculum))
    engine = Engine(policy, ModelConfig(lr=3e-4), sampler=policy, sampling=SAMPLING)
    optimizer = PolicyOptimizer(engine, Watched(Exact(), feed), resolve(algorithm))
    tokens = 0.0
    for step in range(150):
        result = optimizer.step(feed.take(8), seed=seed * 1000 + step, more=feed.take)
        tokens += result.metrics.get("resample/wasted_tokens", 0.0) + sum(sum(r.mask) for r in result.rollouts)
    return success(policy, hard[40:]), success(policy, easy[160:]), tokens


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_retiring_what_is_solved_learns_the_rest_sooner(seed):
    grpo = {"name": "grpo", "kl": {"coef": 0.0}}
    hard, _, tokens = train(seed, grpo)
    hard_retired, easy_retired, tokens_retired = train(seed, grpo, kind="retire")
    assert tokens_retired <= 1.01 * tokens
    assert hard_retired > hard + 0.08, (hard, hard_retired)
    assert easy_retired > 0.95  # what was retired is not forgotten


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_retiring_spares_dynamic_sampling_what_it_would_throw_away(seed):
    dapo = {"name": "dapo", "overlong": {"rule": "keep"}}
    hard, _, tokens = train(seed, dapo)
    hard_retired, _, tokens_retired = train(seed, dapo, kind="retire", window=1)
    assert tokens_retired < 0.75 * tokens
    assert hard_retired > hard, (hard, hard_retired)
