"""Learning from what the reward accepts: in rounds, and online with the preset (see also test_copy)."""

from __future__ import annotations

import random

import pytest
from copying import ends, fresh, learn

from prefrl.config import ModelConfig, RejectionConfig, SamplingConfig
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.recipes.common import Checked
from prefrl.recipes.rejection import SelfTraining
from prefrl.types import Prompt, Row, Score

SEEDS = [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]


class Exact:
    """1 for a completion that is the prompt's three digits, else 0."""

    name = "exact"

    def score(self, rollouts):
        return [Score(value=float(r.text == r.prompt.text[:3])) for r in rollouts]

    def update(self, rollouts, scores):
        return {}


def prompts_of(numbers):
    return [Prompt(id=f"{number:03d}", text=f"{number:03d}=") for number in numbers]


def warmed(seed, prompts, updates):
    """A policy that has seen a few demonstrations."""
    policy = fresh(seed)
    tokenizer, engine = policy.tokenizer, Engine(policy, ModelConfig(lr=2e-3))
    rng = random.Random(seed)
    for _ in range(updates):
        rows = []
        for prompt in rng.choices(prompts, k=32):
            ids = (*tokenizer(prompt.id)["input_ids"], tokenizer.eos_token_id)
            rows.append(Row(prompt_ids=policy.encode(prompt), completion_ids=ids, mask=(True,) * 4))
        learn_completions(engine, rows)
    return policy


def self_train(seed, output, **changes):
    """Held-out success before the first round and after every one."""
    numbers = random.Random(seed).sample(range(1000), 400)
    train, held_out = prompts_of(numbers[:200]), prompts_of(numbers[200:])
    config = RejectionConfig(
        policy=ModelConfig(lr=1e-3, schedule="linear"),
        sampling=SamplingConfig(max_new_tokens=4),
        batch_size=32,
        seed=seed,
        **{"max_per_prompt": 1, "epochs": 6, **changes},
    )
    folder = RunFolder.create(output, "rejection", {})
    SelfTraining(folder, warmed(seed, train, 40), train, held_out, Checked(Exact()), config).run()
    return read(output).series("reward/mean", "eval")[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_rounds_from_the_start_weights(seed, tmp_path):
    curve = self_train(seed, tmp_path / "run")
    assert curve[0] < 0.45, curve
    assert curve[-1] > curve[0] + 0.25, curve


@pytest.mark.parametrize("seed", SEEDS)
def test_rounds_that_go_on(seed, tmp_path):
    curve = self_train(seed, tmp_path / "run", restart=False)
    assert curve[0] < 0.45, curve
    assert curve[-1] > 0.85, curve


def test_accepting_everything_teaches_nothing(tmp_path):
    """What lifts success is the selection: with a threshold below all rewards and no limit there is none."""
    curve = self_train(0, tmp_path / "run", restart=False, thresholds=(0.0,), max_per_prompt=0, epochs=1)
    assert curve[-1] < curve[0] + 0.1, curve


@pytest.mark.parametrize("seed", SEEDS)
def test_the_preset_with_its_threshold_after_a_warm_start(seed):
    policy = warmed(seed, prompts_of(range(1000)), 40)
    engine = Engine(policy, ModelConfig(lr=1e-3), sampler=policy, sampling=SamplingConfig(max_new_tokens=3))
    optimizer = PolicyOptimizer(engine, Exact(), resolve("rejection"))
    first, last = ends(learn(optimizer, seed, steps=80))
    assert first < 0.6
    assert last > 0.9, (first, last)
