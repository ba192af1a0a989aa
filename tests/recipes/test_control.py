"""prefrl control: a policy is cloned, improved, measured, recorded, saved and had back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prefrl.cli import main
from prefrl.config import ControlConfig, ModelConfig, SamplingConfig
from prefrl.data.demonstrations import load_demonstrations, save_demonstrations
from prefrl.errors import ConfigError, DataError, ModelError
from prefrl.evaluate.run_folder import read
from prefrl.model.control import ControlPolicy, control_policy, load_control_policy
from prefrl.recipes.common import Checked
from prefrl.recipes.control_learner import (
    clone,
    control_learner,
    evaluate_control,
    limit_of,
    minibatches_for,
    resolve_control,
    row_of_episode,
)
from prefrl.rewards import environment
from prefrl.rollout.pomdp import Aliased
from prefrl.types import Prompt

CONFIG = Path(__file__).parents[2] / "configs" / "tiny" / "control.yaml"


def balance(seed=0, n=6, steps=60):
    """Episodes in which the pole is pushed to the side it falls to: a decent teacher made by hand."""
    policy = control_policy("CartPole-v1", normalise=False, hidden=(), seed=seed)
    with torch.no_grad():
        layer = policy.net[-1]
        layer.weight.copy_(torch.tensor([[0.0, 0.0, -10.0, -10.0], [0.0, 0.0, 10.0, 10.0]]))
    return policy.sample(
        [Prompt(id=str(i), text="") for i in range(n)], 1, SamplingConfig(max_new_tokens=steps), seed=seed
    )


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory):
    """A file of six episodes."""
    return str(save_demonstrations(tmp_path_factory.mktemp("expert") / "expert.npz", balance()))


def go(out, demonstrations, *flags):
    flags = ["control", str(CONFIG), "--cloning.demonstrations", demonstrations, "--output", str(out), *flags]
    assert main(flags) == 0
    return read(out)


def test_the_tiny_run_leaves_everything(tmp_path, demonstrations):
    run = go(tmp_path / "out", demonstrations)
    assert (run.kind, run.state) == ("control", "finished")
    assert run.series("return/mean")[0] == [1, 2]
    assert run.series("return/mean", "eval")[0] == [0, 1, 2]
    assert run.series("nll", "clone")[0] == [1, 2]
    summary = run.status["summary"]
    assert summary["end/return/low"] <= summary["end/return/mean"] <= summary["end/return/high"] <= 20.0
    assert (summary["rounds"], summary["recorded"]) == (2, 3)
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    recorded = load_demonstrations(tmp_path / "out" / "demonstrations.npz")
    assert [(len(r.completion_ids), r.truncated) for r in recorded] == [(20, True)] * 3


def test_a_run_can_be_had_again(tmp_path, demonstrations):
    runs = [go(tmp_path / name, demonstrations) for name in ("one", "two")]
    assert runs[0].series("return/mean") == runs[1].series("return/mean")
    assert runs[0].series("grad_norm") == runs[1].series("grad_norm")


def test_a_saved_policy_plays_on_as_before(tmp_path, demonstrations):
    go(tmp_path / "out", demonstrations)
    folder = tmp_path / "out" / "checkpoints" / "final"
    policy = load_control_policy(folder)
    assert json.loads((folder / "policy.json").read_text())["horizon"] == 20
    recorded = load_demonstrations(tmp_path / "out" / "demonstrations.npz")
    played = evaluate_control(policy, 3, seed=0)[1]
    assert [r.completion_ids for r in played] == [r.completion_ids for r in recorded]


@pytest.mark.parametrize(
    ("env", "more"),
    [
        ("CartPole-v1", {"visible": (0, 2), "recurrent": 5}),
        ("Pendulum-v1", {"distribution": "squashed"}),
        (Aliased, {"recurrent": 4}),
    ],
)
def test_policies_come_back_bit_for_bit(tmp_path, env, more):
    policy = control_policy(env, hidden=(6,), seed=1, **more)
    params = SamplingConfig(max_new_tokens=10)
    prompts = [Prompt(id="a", text="", columns={"start": "A"})]
    policy.observe(policy.sample(prompts, 4, params, seed=0))
    policy.save(tmp_path / "policy")
    again = load_control_policy(tmp_path / "policy", None if isinstance(env, str) else env)
    one, other = (p.sample(prompts, 4, params, seed=5) for p in (policy, again))
    assert [(r.completion_ids, r.logps) for r in one] == [(r.completion_ids, r.logps) for r in other]


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(ModelError, match="No control policy can be read from"):
        load_control_policy(tmp_path)
    control_policy("CartPole-v1", hidden=(6,)).save(tmp_path / "policy")
    record = json.loads((tmp_path / "policy" / "policy.json").read_text())
    (tmp_path / "policy" / "policy.json").write_text(json.dumps({**record, "hidden": [7]}))
    with pytest.raises(ModelError, match="weights of a control policy cannot be read"):
        load_control_policy(tmp_path / "policy")
    del record["low"]
    (tmp_path / "policy" / "policy.json").write_text(json.dumps(record))
    with pytest.raises(ModelError, match=r"policy.json lacks low; expected what ControlPolicy.save writes"):
        load_control_policy(tmp_path / "policy")


@pytest.mark.parametrize("memory", [0, 8])
def test_cloning_learns_what_was_shown(memory):
    shown = balance(n=10)
    policy = control_policy("CartPole-v1", hidden=(16,), recurrent=memory, seed=0)
    ids = [action for episode in shown for action in episode.completion_ids]

    def agreement():
        likely = policy.outputs([row_of_episode(r) for r in shown]).argmax(-1).tolist()
        return sum(a == b for a, b in zip(likely, ids, strict=True)) / len(ids)

    before = agreement()
    losses = clone(policy, shown, ModelConfig(lr=1e-2), epochs=30, minibatches=4)
    assert losses[0] > 0.5 > 0.3 > losses[-1]
    assert before < 0.75 < 0.85 < agreement()


def test_cloning_continuous_actions_is_maximum_likelihood():
    # Without an input the best Gaussian is that of the actions: mean .5 and deviation .25 of half the range, 2.
    policy = control_policy("Pendulum-v1", hidden=(), normalise=False, seed=0)
    (episode,) = policy.sample([Prompt(id="a", text="")], 1, SamplingConfig(max_new_tokens=100), seed=0)
    episode.observations.zero_()
    episode.actions[:] = torch.tensor([1.5, 0.5]).repeat(50)[:, None]
    clone(policy, [episode], ModelConfig(lr=3e-2, max_grad_norm=0.0, schedule="linear"), epochs=400)
    mean, log_std = policy.net(torch.zeros(1, 3))[0].tolist()
    assert mean == pytest.approx(0.5, abs=0.01)
    assert log_std == pytest.approx(-1.386, abs=0.02)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Pendulum-v1", r"has 4 numbers in an observation and actions of whole numbers \(0 to 1\); the policy sees 3"),
        ("MountainCar-v0", "the policy sees 2 and plays whole numbers from 0 to 2"),
    ],
)
def test_demonstrations_of_another_environment_are_refused(env, message):
    with pytest.raises(DataError, match=message):
        clone(control_policy(env), balance(n=1), ModelConfig(), epochs=1)


def test_an_action_below_0_is_none():
    shown = [replace(r, completion_ids=(-1, *r.completion_ids[1:])) for r in balance(n=1)]
    with pytest.raises(DataError, match=r"whole numbers \(-1 to 1\); the policy sees 4"):
        clone(control_policy("CartPole-v1"), shown, ModelConfig(), epochs=1)


def test_a_report_speaks_of_episodes_and_shows_their_returns(tmp_path, demonstrations):
    run = go(tmp_path / "out", demonstrations)
    page = (run.path / "report.html").read_text()
    read = re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).split("Configuration")[0]
    assert "Mean return went from" in read and "Episode length" in read and "actions per episode" in read
    assert not re.findall(r"answers?|tokens?", read, flags=re.IGNORECASE)
    assert "at evaluations" in read and (run.path / "figures" / "mean-return.svg").stat().st_size > 0


def test_a_device_that_is_not_there():
    assert next(control_policy("CartPole-v1").net.parameters()).device.type == "cpu"
    assert next(control_policy("CartPole-v1", device="meta").net.parameters()).device.type == "meta"
    with pytest.raises(ConfigError, match=r"'nowhere' cannot be used.*Set policy\.device to cpu"):
        control_policy("CartPole-v1", device="nowhere")


def test_the_normaliser_moves_when_it_is_told_to_and_never_else():
    policy = control_policy("CartPole-v1", seed=0)
    rollouts = policy.sample([Prompt(id="a", text="")], 3, SamplingConfig(max_new_tokens=9), seed=0)
    evaluate_control(policy, 3)
    assert float(policy.net[0].count) == 0.0
    for part in (rollouts[:1], rollouts[1:]):
        policy.observe(part)
    seen = torch.cat([r.observations for r in rollouts])
    torch.testing.assert_close(policy.net[0].mean, seen.mean(0))
    torch.testing.assert_close(policy.net[0].variance, seen.var(0, correction=0))
    assert float(policy.net[0].count) == len(seen)
    torch.testing.assert_close(policy.net[0](seen).std(0, correction=0), torch.ones(4), atol=1e-3, rtol=1e-3)
    critic = policy.value_net()
    assert critic[0] is policy.net[0]


def test_algorithms_of_control_have_no_kl_unless_they_are_told():
    assert (resolve_control("ppo").kl.coef, resolve_control("ppo").critic.kind) == (0.0, "separate")
    assert resolve_control({"name": "ppo", "kl": {"coef": 0.1}}).kl.coef == 0.1
    assert resolve_control({"name": "ppo", "critic": {"kind": "head"}}).critic.kind == "head"
    assert resolve_control("rloo").kl.coef == 0.0
    assert resolve_control("dpo").pairs is not None


@pytest.mark.parametrize(
    "algorithm", ["ppo", "rloo", "grpo", "cispo", "gspo", "reinforce_pp", "full_ratio", "rejection"]
)
@pytest.mark.parametrize(("env", "memory"), [("Pendulum-v1", 0), ("CartPole-v1", 4)])
def test_every_algorithm_learns_control(algorithm, env, memory):
    policy = control_policy(env, hidden=(8,), recurrent=memory, seed=0)
    parts = resolve_control(
        {"name": algorithm, "group_size": 4, "entropy": 0.01}
        if algorithm != "rejection"
        else {"name": algorithm, "group_size": 4, "select": {"keep": "best"}}
    )
    cut = minibatches_for(policy, parts, 2 if parts.ratio != "none" else 1)
    learner = control_learner(
        policy,
        Checked(environment("rewards")),
        parts,
        ModelConfig(lr=1e-3),
        episodes=8,
        steps=2,
        minibatches=cut,
        horizon=10,
    )
    before = [p.detach().clone() for p in policy.net.parameters()]
    found = [learner.step() for _ in range(2)][-1]
    assert len(found.rollouts) == 8
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.net.parameters(), strict=True))
    assert found.metrics["reward/mean"] == pytest.approx(sum(r.info["return"] for r in found.rollouts) / 8)


def test_equal_actions_are_not_equal_episodes():
    # The completion_ids of continuous actions are all 0: each accepted episode counts all the same.
    policy = control_policy("Pendulum-v1", seed=0)
    parts = resolve_control({"name": "rejection", "group_size": 4, "select": {"threshold": -1e9}})
    made = control_learner(
        policy, Checked(environment("rewards")), parts, ModelConfig(), episodes=8, steps=1, horizon=5
    )
    assert made.step().metrics["select/kept"] == 8.0


def test_lengths_of_episodes():
    policy = control_policy("Pendulum-v1")
    assert [limit_of(policy, h) for h in (0, 50, 900)] == [200, 50, 200]
    with pytest.raises(ConfigError, match="Nothing says how long an episode may be"):
        limit_of(ControlPolicy(1, 2, Aliased))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"environment": ""}, "environment is empty"),
        ({"episodes": 0}, "episodes is 0; expected 1 or more"),
        ({"steps": 0}, "steps is 0 and cloning.demonstrations empty"),
        ({"horizon": -1}, "horizon is -1"),
    ],
)
def test_configurations_that_cannot_be_are_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        ControlConfig(**more)


def test_a_critic_from_elsewhere_is_refused(tmp_path, capsys):
    base = ["--algorithm.critic.kind", "separate", "--algorithm.critic.base", "runs/prm"]
    assert main(["control", str(CONFIG), "--output", str(tmp_path / "run"), *base]) == 2
    assert "critic.base is 'runs/prm'; expected none" in capsys.readouterr().err
