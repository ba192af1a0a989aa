"""Every preset learns to copy from given judgements alone: nothing is sampled while it learns."""

from __future__ import annotations

import random

import pytest
from copying import Copied, half_trained, prompts

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import ALGORITHMS
from prefrl.policy.optimizer import learn_pairs
from prefrl.types import Row

PRESETS = [name for name, algorithm in ALGORITHMS.items() if algorithm.pairs is not None]


def given(policy, rng, count, *, single):
    """The right copy against what the policy says at the start; or each judged alone."""
    rows = []
    some = prompts(rng, count)
    said = policy.sample(some, 1, SamplingConfig(max_new_tokens=3), seed=rng.randrange(10**6))
    for prompt, rollout in zip(some, said, strict=True):
        ids = policy.encode(prompt)
        if rollout.completion_ids == ids[:3]:
            continue
        for side, completion in ((1, ids[:3]), (-1, rollout.completion_ids)):
            atom = len(rows) if single else len(rows) // 2
            row = Row(prompt_ids=ids, completion_ids=completion, mask=(True,) * len(completion), side=side, atom=atom)
            rows.append(row)
    return rows


def right(policy, seed=10**7):
    """Share of digits copied on prompts that are never trained on."""
    drawn = policy.sample(prompts(random.Random(99), 128), 2, SamplingConfig(max_new_tokens=3), seed=seed)
    return sum(score.value for score in Copied().score(drawn)) / len(drawn)


def learnt(name, seed, *, steps=60, size=32):
    """Digits copied before and after."""
    spec, policy, rng = ALGORITHMS[name].pairs, half_trained(seed, adapter=False), random.Random(seed)
    before = right(policy)
    rows = given(policy, rng, 512, single=not spec.paired)
    engine = Engine(policy, ModelConfig(lr=1e-3), reference=True)
    if spec.needs_reference:
        for row, logps in zip(rows, engine.logps(rows, "reference"), strict=True):
            row.streams["ref_logps"] = logps
    pairs = [rows[i : i + 2] for i in range(0, len(rows), 2)]
    for _ in range(steps):
        batch = [row for pair in rng.sample(pairs, size) for row in pair]
        for row in batch:
            row.weight = 1.0 / (size if spec.paired else 2 * size)
        learn_pairs(engine, batch, spec)
    return before, right(policy)


@pytest.mark.parametrize("name", PRESETS)
def test_learning_from_given_judgements(name):
    before, after = learnt(name, 1)
    assert before < 0.35
    assert after >= 0.6, f"{name}: {before:.3f} -> {after:.3f}"
