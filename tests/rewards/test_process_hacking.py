"""What a policy learns from each placement when a worthless step is cheap: additive is hacked, the default is not."""

from __future__ import annotations

import pytest
from stepping import Judge
from tiny import language_model

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.rewards.base import attach
from prefrl.rewards.process import ProcessReward
from prefrl.types import Prompt

BUDGET = 8


def trivial(_, step):
    """A step model as real ones are: an empty-handed step is fine, and it says nothing of how things end."""
    return 0.9


def steps_of(placement, updates=25):
    """Mean number of steps and mean reward of a policy, before and after training; a comma ends a step."""
    policy = language_model(seed=1)
    engine = Engine(policy, ModelConfig(lr=2e-2), sampler=policy, sampling=SamplingConfig(max_new_tokens=BUDGET))
    source = ProcessReward(Judge(trivial, separator=","), placement=placement)
    attach(source, engine)
    optimizer = PolicyOptimizer(engine, source, resolve({"name": "reinforce", "group_size": 16}))
    prompts = [Prompt(id="p", text="1"), Prompt(id="q", text="2")]
    steps, totals = [], []
    for step in range(updates):
        found = optimizer.step(prompts, seed=step)
        steps.append(sum(s.parts["n_steps"] for s in found.scores) / len(found.scores))
        totals.append(sum(s.total for s in found.scores) / len(found.scores))
    return [sum(figures[part]) / 3 for figures in (steps, totals) for part in (slice(3), slice(-3, None))]


def test_additive_is_hacked_by_more_steps_and_the_default_is_not():
    before, hacked, poor, rich = steps_of("additive")
    _, kept, *sums = steps_of("potential")
    assert before < 2.5
    assert hacked > 5.0, "a policy that is paid by the step writes steps"
    assert rich > 2.5 * poor, "and its reward rises though no answer is any better"
    assert kept < before + 1.0, "one that is not does not"
    assert sums == pytest.approx([0.0, 0.0], abs=1e-9)
