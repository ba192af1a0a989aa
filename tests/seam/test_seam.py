"""One optimizer, every kind of reward source: nothing below knows which one it is talking to."""

from __future__ import annotations

import itertools

import pytest
import torch
from tiny import digit_tokenizer, llama, rollout

from prefrl.config import ModelConfig, SamplingConfig
from prefrl.errors import ConfigError, RewardError
from prefrl.model.control import ControlPolicy
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import Scored
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.policy.rows import weighted_rows
from prefrl.recipes.common import Checked
from prefrl.rewards import function
from prefrl.types import Prompt, Score

PROMPTS = [Prompt(id=str(i), text=f"{i}{i}=") for i in range(4)]


class Source:
    """A toy reward source made of one function from a group's rollouts to scores."""

    def __init__(self, name, score):
        self.name, self._score = name, score

    def score(self, rollouts):
        groups = {g: list(rs) for g, rs in itertools.groupby(rollouts, key=lambda r: r.group)}
        scored = {id(r): s for rs in groups.values() for r, s in zip(rs, self._score(rs), strict=True)}
        return [scored[id(r)] for r in rollouts]


def digits(rollout):
    return [int(c) for c in rollout.text if c.isdigit()]


def scalar(group):
    return [Score(value=float(sum(digits(r)))) for r in group]


def per_step(group):
    """A step is two tokens; its score stands at its last token."""
    return [
        Score(steps=tuple((i, float(t % 2)) for i, t in enumerate(r.completion_ids) if i % 2 or i == r.last_sampled))
        for r in group
    ]


def per_token(group):
    return [Score(steps=tuple((i, float(t % 2)) for i, t in enumerate(r.completion_ids))) for r in group]


def tournament(group):
    """Win share over all pairs of the group: the score of one rollout depends on the others."""
    totals = [sum(digits(r)) for r in group]
    return [Score(value=sum((a > b) + 0.5 * (a == b) for b in totals) / len(group)) for a in totals]


def failing_sometimes(group):
    return [Score.failed("no judge today") if i == 0 else s for i, s in enumerate(scalar(group))]


def optimizer(source, algorithm="grpo", **changes):
    tokenizer = digit_tokenizer()
    policy = LanguageModel(llama(len(tokenizer)), tokenizer, name="tiny")
    chosen = resolve({"name": algorithm, "group_size": 4, **changes})
    engine = Engine(
        policy,
        ModelConfig(lr=1e-2),
        sampler=policy,
        sampling=SamplingConfig(max_new_tokens=4),
        reference="reference" in chosen.needs,
    )
    return PolicyOptimizer(engine, Checked(source, max_error_fraction=0.5), chosen)


@pytest.mark.parametrize("algorithm", ["reinforce", "rloo", "grpo", "dr_grpo", "dpo"])
@pytest.mark.parametrize("score", [scalar, per_step, per_token, tournament, failing_sometimes])
def test_every_source_trains_with_every_algorithm(score, algorithm):
    one = optimizer(Source(score.__name__, score), algorithm)
    before = [p.detach().clone() for p in one.policy.actor.module.parameters()]
    result = one.step(PROMPTS, seed=1)
    assert any((a != b).any() for a, b in zip(before, one.policy.actor.module.parameters(), strict=True))
    assert result.version == 1
    assert result.metrics["errors"] == (0.25 if score is failing_sometimes else 0.0)


def test_failed_rollouts_leave_baseline_loss_and_means():
    one = optimizer(Source("scalar", scalar))
    rollouts = one.policy.sample(PROMPTS, 4, seed=3)
    scores = one.reward.score(rollouts)
    broken = [Score.failed("gone") if i % 4 == 0 else s for i, s in enumerate(scores)]
    kept = [i for i in range(16) if i % 4]
    gradients = []
    for rs, ss in ((rollouts, broken), ([rollouts[i] for i in kept], [scores[i] for i in kept])):
        fresh = optimizer(Source("scalar", scalar))
        metrics = fresh.learn(rs, ss)
        gradients.append((metrics["grad_norm"], metrics["loss"], metrics["reward/mean"]))
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-6)


def test_a_step_score_reaches_only_the_tokens_before_it():
    pair = [
        Scored(rollout((1, 2, 3, 4)), Score(steps=((1, 1.0), (3, 0.0)))),
        Scored(rollout((1, 2, 3, 4)), Score(steps=((1, 0.0), (3, 0.0)))),
    ]
    rows = weighted_rows(pair, resolve({"name": "dr_grpo", "group_size": 2}), 4, lambda t: t)
    # Events 1, 0, 0, 0 with mean 1/4; weights 1 / (2 rollouts * 4 tokens).
    torch.testing.assert_close(rows[0].streams["rl"] * 8, torch.tensor([0.5, 0.5, -0.25, -0.25]))
    torch.testing.assert_close(rows[1].streams["rl"] * 8, torch.tensor([-0.5, -0.5, -0.25, -0.25]))


def test_a_plain_function_is_a_source():
    one = optimizer(function(lambda text, stop: float(len(text)), name="length"))
    metrics = one.step(PROMPTS, seed=2).metrics
    assert 0.0 < metrics["reward/mean"] <= 4.0


def test_a_source_that_fails_everywhere_stops_the_run_and_names_itself():
    def broken(text):
        raise ZeroDivisionError("oh")

    with pytest.raises(RewardError, match=r"broken.*ZeroDivisionError"):
        optimizer(function(broken)).step(PROMPTS, seed=1)


class Corridor:
    """Five cells; action 1 goes right, 0 left; the episode ends at either end. Observation: one-hot cell."""

    def reset(self, prompt):
        self.cell = 2
        return self._seen()

    def step(self, action):
        self.cell += 1 if action else -1
        return self._seen(), self.cell in (0, 4)

    def _seen(self):
        return torch.nn.functional.one_hot(torch.tensor(self.cell), 5).float()


def acted_in(rollout):
    """The observations before every action."""
    return rollout.observations[: len(rollout.completion_ids)]


class CoTrained:
    """A discriminator-like source: a linear reward on states, trained between rollouts towards demonstrations."""

    name = "co_trained"

    def __init__(self):
        self.weights = torch.zeros(5)
        self.updates = 0

    def score(self, rollouts):
        return [
            Score(steps=tuple((t, float(r)) for t, r in enumerate(acted_in(rollout) @ self.weights)))
            for rollout in rollouts
        ]

    def update(self, rollouts, scores):
        visited = torch.stack([acted_in(r).mean(0) for r in rollouts]).mean(0)
        expert = torch.tensor([0.0, 0.0, 0.5, 0.5, 0.0])  # the demonstrator walks to the right
        self.weights += 0.5 * (expert - visited)
        self.updates += 1
        return {"source/gap": float((expert - visited).abs().sum())}


@pytest.mark.parametrize("algorithm", ["reinforce", "rloo", "grpo"])
def test_a_co_trained_source_and_a_control_policy(algorithm):
    torch.manual_seed(0)
    policy = ControlPolicy(5, 2, Corridor)
    source = CoTrained()
    chosen = resolve({"name": algorithm, "group_size": 16} | {"kl": {"coef": 0.0}})
    engine = Engine(policy, ModelConfig(lr=3e-2), sampler=policy, sampling=SamplingConfig(max_new_tokens=8))
    one = PolicyOptimizer(engine, Checked(source), chosen)
    prompts = [Prompt(id="corridor", text="walk")]

    def to_the_right():
        return sum(int(r.observations[-1].argmax()) == 4 for r in engine.sample(prompts, 100, seed=99)) / 100

    before = to_the_right()
    metrics = [one.step(prompts, seed=s).metrics for s in range(40)]
    assert source.updates == 40
    assert "source/gap" in metrics[0]
    assert before < 0.7
    assert to_the_right() > 0.9


def test_several_updates_without_a_ratio_are_refused():
    one = optimizer(Source("scalar", scalar))
    with pytest.raises(ConfigError, match="no importance ratio"):
        PolicyOptimizer(one.policy, one.reward, resolve("reinforce"), updates=2)


def test_kl_in_the_reward_is_paid_by_scores_of_steps_alone():
    far = torch.tensor([-3.0, -3.0])  # the reference finds the first rollout less likely than its policy did
    pair = [
        Scored(rollout((1, 2)), Score(steps=((0, 1.0),)), far),
        Scored(rollout((1, 2)), Score(steps=((0, 1.0),)), torch.tensor([-1.0, -1.0])),
    ]
    rows = weighted_rows(pair, resolve({"name": "rloo", "group_size": 2}), 2, lambda t: t)
    # KL 4 against 0 at coefficient .05: leave-one-out advantages -.2 and .2, over two rollouts.
    torch.testing.assert_close(rows[0].streams["rl"], torch.tensor([-0.1, -0.1]))
    torch.testing.assert_close(rows[1].streams["rl"], torch.tensor([0.1, 0.1]))
