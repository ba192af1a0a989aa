"""Copying three digits: a task that a tiny transformer learns from random weights and reward alone, in seconds."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from tiny import digit_tokenizer, llama

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.critic import make_critic
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import add_lora
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.optimizer import PolicyOptimizer, learn_completions
from prefrl.types import Prompt, Row, Score

STEPS = 240
# What a preset needs to learn this task; the rest is as the table has it.
CHANGES = {
    "ppo": {"entropy": 0.01},  # without it one seed of three stalls at .89
    "reinforce_pp": {"entropy": 0.01},  # without it one seed of three stalls at .90
    "dapo": {"overlong": {"rule": "keep"}},  # every completion needs its whole budget here
    "ipo": {"pairs": {"beta": 0.02}},  # at .1 pairs stop 5 nats apart, too near to the random start
    "kto": {"pairs": {"beta": 0.5}},  # at .1 one seed of three stalls at .80
    "rejection": {"select": {"keep": "best"}},  # no completion reaches a reward of 1 at the start
}


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


def prompts(rng, count=16):
    digits = ["".join(rng.choice("0123456789") for _ in range(3)) for _ in range(count)]
    return [Prompt(id=str(i), text=f"{d}=") for i, d in enumerate(digits)]


def fresh(seed):
    """A policy of random weights."""
    tokenizer = digit_tokenizer()
    return LanguageModel(llama(len(tokenizer), hidden=64, seed=seed), tokenizer, name="tiny")


def half_trained(seed, steps=20, *, adapter=True):
    """A policy that copies about a third of the digits; with an adapter, for which random weights alone are no base."""
    policy = fresh(seed)
    engine = Engine(policy, ModelConfig(lr=2e-3))
    rng = random.Random(seed)
    for _ in range(steps):
        encoded = [policy.encode(prompt) for prompt in prompts(rng, 64)]
        learn_completions(engine, [Row(prompt_ids=p, completion_ids=p[:3], mask=(True,) * 3) for p in encoded])
    if adapter:
        policy.model = add_lora(policy.model, 16, seed)
    return policy


def optimizer_of(spec, policy, *, lr=1e-3, critic_lr=1e-2):
    algorithm = resolve(spec)
    engine = Engine(
        policy,
        ModelConfig(lr=lr),
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=3),
        reference="reference" in algorithm.needs,
    )
    critic = make_critic(algorithm.critic.kind, policy, lr=critic_lr) if "values" in algorithm.needs else None
    return PolicyOptimizer(engine, Copied(), algorithm, critic=critic)


def learn(optimizer, seed, steps=STEPS, *, enough=math.inf):
    """Mean reward of every step, until ten steps in a row have reached `enough` on average."""
    rng, curve = random.Random(seed), []
    while len(curve) < steps and (len(curve) < 20 or sum(curve[-10:]) / 10 < enough):
        curve.append(optimizer.step(prompts(rng), seed=seed * 100_000 + len(curve)).metrics["reward/mean"])
    return curve


def ends(curve):
    """Mean of the first and of the last ten."""
    return sum(curve[:10]) / 10, sum(curve[-10:]) / 10


def free(name, **changes):
    """The preset with groups of eight and free to leave its random start."""
    held = {} if ALGORITHMS[name].pairs else {"kl": {"coef": 0.0}}
    return {"name": name, "group_size": 8} | held | CHANGES.get(name, {}) | changes
