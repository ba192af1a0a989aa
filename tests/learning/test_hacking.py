"""A reward that can be hacked: the patrol speaks before what is wanted has lost much, and can stop the run."""

from __future__ import annotations

import copy
import random

import pytest
from copying import Copied, fresh, prompts

from prefrl.config import ModelConfig, RLConfig, SamplingConfig
from prefrl.evaluate.patrol import replay
from prefrl.evaluate.report import write_run_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.engine import Engine
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.rl import optimize_policy
from prefrl.rewards import Audit, WeightedSum
from prefrl.types import Score

STEPS = 60


class Hackable:
    """Full marks for any text that ends in 00, less for three right digits, and less again for fewer."""

    name = "hackable"

    def score(self, rollouts):
        right = [sum(a == b for a, b in zip(r.text, r.prompt.text[:3], strict=False)) / 3 for r in rollouts]
        return [
            Score(value=1.0 if r.text.endswith("00") else 0.9 if share == 1 else share / 2)
            for r, share in zip(rollouts, right, strict=True)
        ]


class Truth:
    """Share of the three digits that are right."""

    name = "truth"

    def score(self, rollouts):
        return Copied().score(rollouts)


@pytest.fixture(scope="module")
def copier():
    """A policy that has begun to copy, by a reward that cannot be hacked."""
    policy = fresh(0)
    algorithm = resolve({"name": "rloo", "group_size": 8, "kl": {"coef": 0.0}})
    engine = Engine(policy, ModelConfig(lr=2e-3), sampler=policy, sampling=SamplingConfig(max_new_tokens=3), budget=3)
    optimizer, rng = PolicyOptimizer(engine, Copied(), algorithm), random.Random(0)
    for step in range(50):
        optimizer.step(prompts(rng), seed=step)
    return policy


def hacked(policy, path, on_alarm):
    config = RLConfig(
        policy=ModelConfig(lr=1e-3),
        algorithm={"name": "rloo", "group_size": 8, "kl": {"coef": 0.0}},
        sampling=SamplingConfig(max_new_tokens=3),
        rewards=[{"kind": "exact"}],  # so that the metrics of rewards are kept; the source itself is given below
        steps=STEPS,
        on_alarm=on_alarm,
    )
    source = WeightedSum([(Hackable(), 1.0), (Audit(Truth()), 0.0)])
    with RunFolder.create(path, "rl", {}) as folder:
        optimize_policy(folder, policy, prompts(random.Random(1), 64), [], source, config)
    return read(folder.path)


@pytest.mark.slow
def test_the_alarm_comes_before_what_is_wanted_has_lost_ten_points(copier, tmp_path):
    data = hacked(copy.deepcopy(copier), tmp_path / "run", "warn")
    _, truth = data.series("audit/mean")
    _, reward = data.series("reward/mean")
    assert truth[0] > 0.4
    assert truth[-1] < truth[0] - 0.3  # it is hacked in the end
    assert reward[-1] > reward[0]
    first = next(alarm for alarm in replay(data) if alarm.grave)
    assert truth[first.step - 1] > truth[0] - 0.1
    report = write_run_report(data.path).read_text()
    assert "false positives" in report
    assert "the policy is gaming the reward" in report  # a little later, when the curves have parted
    assert f"Step {first.step}:" in report


@pytest.mark.slow
def test_a_run_can_be_stopped_by_the_alarm(copier, tmp_path, capsys):
    data = hacked(copy.deepcopy(copier), tmp_path / "run", "stop")
    steps, truth = data.series("audit/mean")
    assert len(steps) < STEPS
    assert truth[-1] > truth[0] - 0.1
    assert f"Stopped after {len(steps)} of {STEPS} steps" in capsys.readouterr().out
