"""A small policy reaches the exact optimum of `success - beta * KL(policy || uniform over the candidates)`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.model.control import ControlPolicy
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.common import Checked
from prefrl.rewards import environment
from prefrl.rollout.guessing import (
    GUESSES,
    NUMBERS,
    OBSERVATION,
    GuessingByNumber,
    consistent,
    evaluate_play,
    observe,
)
from prefrl.types import Prompt

PROMPTS = [Prompt(id=str(n), text="", columns={"target": n}) for n in range(1, NUMBERS + 1)]
OPTIMUM = {0.25: (0.661488, 0.165922), 0.1: (0.775515, 0.947075)}  # success, KL


class Table(nn.Module):
    """A row of logits for every state: the lowest and the highest candidate, and the guesses left."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(NUMBERS * NUMBERS * GUESSES, NUMBERS, bias=False)

    def forward(self, observations):
        candidates, left = observations[:, :NUMBERS], observations[:, NUMBERS:].argmax(-1)
        low, above = candidates.argmax(-1), candidates.flip(-1).argmax(-1)
        return self.logits.weight.T[(low * NUMBERS + above) * GUESSES + left]


def network():
    return nn.Sequential(nn.Linear(OBSERVATION, 128), nn.ReLU(), nn.Linear(128, NUMBERS))


def policy_of(net):
    return ControlPolicy(OBSERVATION, NUMBERS, GuessingByNumber, net=net, mask=consistent, zero_init=True)


def play_of(policy):
    """The policy as a function from states to probabilities."""

    def play(state):
        with torch.no_grad():
            found = policy.distribution(observe(state)[None].double()).double().exp()[0]
        return {n: float(found[n - 1]) for n in range(1, NUMBERS + 1)}

    return play


def learn(policy, beta, *, seed, lr, group_size, steps):
    algorithm = resolve({"name": "rloo", "group_size": group_size, "kl": {"coef": beta, "place": "reward"}})
    engine = Engine(
        policy,
        ModelConfig(lr=lr, schedule="linear", max_grad_norm=0.0, token_budget=100_000),
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=GUESSES),
        total_steps=steps,
        reference=True,
    )
    optimizer = PolicyOptimizer(engine, Checked(environment()), algorithm)
    for step in range(steps):
        optimizer.step(PROMPTS, seed=seed * 1_000_000 + step)


@pytest.mark.parametrize("make", [Table, network])
def test_the_start_is_the_reference(make):
    success, kl = evaluate_play(play_of(policy_of(make())))
    assert success == pytest.approx(0.579924, abs=1e-6)
    assert kl == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("beta", OPTIMUM)
def test_a_table_reaches_the_optimum(beta):
    policy = policy_of(Table())
    learn(policy, beta, seed=0, lr=0.1 if beta < 0.2 else 0.03, group_size=16, steps=200)
    assert_optimal(policy, beta)


@pytest.mark.slow
def test_a_network_reaches_the_optimum():
    policy = policy_of(network())
    # The states share its weights, so noise in one moves all: larger batches.
    learn(policy, 0.25, seed=0, lr=0.03, group_size=32, steps=200)
    assert_optimal(policy, 0.25)


def assert_optimal(policy, beta):
    success, kl = evaluate_play(play_of(policy))
    best, best_kl = OPTIMUM[beta]
    print(f"beta {beta}: success {success:.4f}, KL {kl:.4f}, value {success - beta * kl:.4f}")
    assert success == pytest.approx(best, abs=0.02)
    assert success - beta * kl == pytest.approx(best - beta * best_kl, abs=0.02)
