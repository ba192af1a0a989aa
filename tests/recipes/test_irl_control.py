"""Learning from demonstrations in an environment, through the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prefrl.cli import main
from prefrl.config import ActorConfig, DiscriminatorConfig, IRLConfig, SamplingConfig
from prefrl.data.demonstrations import save_demonstrations
from prefrl.errors import ConfigError, RewardError
from prefrl.evaluate.run_folder import read
from prefrl.model.control import control_policy, load_control_policy
from prefrl.policy.algorithms import resolve
from prefrl.recipes.control_learner import episodes
from prefrl.recipes.irl import algorithm_of, check_paid, imitate, recipe_of
from prefrl.recipes.irl_study import prepare
from prefrl.rewards.inverse.buffer import rows_of
from prefrl.rewards.inverse.exported import NetReward
from prefrl.rewards.specs import build
from prefrl.types import Prompt, Rollout, StopReason

CONFIGS = Path(__file__).parents[2] / "configs"
METHODS = ("airl", "gail", "gcl")


@pytest.fixture(scope="module")
def whole(expert, tmp_path_factory):
    """A run of every method from start to end, made when asked for."""
    made = {}

    def whole(method):
        if method not in made:
            made[method] = go(method, expert, tmp_path_factory.mktemp("whole") / method)
        return made[method]

    return whole


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    """A file with episodes of a policy that knows nothing."""
    policy = control_policy("CartPole-v1", horizon=12, hidden=(4,), seed=9)
    played = policy.sample([Prompt(id="e", text="e")], 6, SamplingConfig(max_new_tokens=12), seed=3)
    return str(save_demonstrations(tmp_path_factory.mktemp("expert") / "expert.npz", played))


def go(method, expert, output, *flags):
    command = ["irl", str(CONFIGS / "tiny" / f"irl_{method}.yaml"), "--output", str(output)]
    assert main([*command, "--demonstrations", expert, *flags]) == 0
    return read(output)


def figures(run):
    clocks = ("time", "seconds")
    return [{k: v for k, v in line.items() if k not in clocks} for line in run.metrics]


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.filterwarnings("ignore:Fewer than 10%")
@pytest.mark.parametrize("method", METHODS)
def test_a_run_from_start_to_report(method, whole):
    run = whole(method)
    checkpoints = run.path / "checkpoints"
    assert run.state == "finished"
    assert [line["step"] for line in run.metrics if line["phase"] == "train"] == [1, 2, 3, 4]
    assert [line["step"] for line in run.metrics if line["phase"] == "eval"] == [0, 2, 4]
    last = [line for line in run.metrics if line["phase"] == "train"][-1]
    measured = {"episode/return", "irl/gap", "irl/loss", "irl/ess" if method == "gcl" else "irl/accuracy_expert"}
    assert measured <= set(last)
    assert run.status["summary"]["return"] == run.series("return/mean", "eval")[1][-1]
    assert run.status["summary"]["expert_return"] > 0
    page = (run.path / "report.html").read_text()
    assert "How far the demonstrations are ahead" in page and "True return" in page
    policy = load_control_policy(checkpoints / "final")
    played = policy.sample([Prompt(id="p", text="p")], 2, SamplingConfig(max_new_tokens=12), seed=0)
    train, test = (NetReward.load(checkpoints / f"{role}_reward") for role in ("train", "test"))
    assert (train.role, test.role) == ("train", "test")
    saved = build({"kind": "reward_net", "path": str(checkpoints / "test_reward")})
    assert saved.score(played) == test.score(played)


@pytest.mark.filterwarnings("ignore:Fewer than 10%")
@pytest.mark.parametrize("method", METHODS)
def test_four_rounds_are_two_and_two_more_bit_for_bit(method, expert, whole, tmp_path):
    run = whole(method)
    go(method, expert, tmp_path / "parts", "--steps", "2")
    parts = go(method, expert, tmp_path / "parts", "--resume", "true")
    assert figures(parts) == figures(run)
    assert files(tmp_path / "parts" / "checkpoints") == files(run.path / "checkpoints")
    suffixes = {path.suffix for path in (run.path / "checkpoints").rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}


def test_steps_after_the_last_checkpoint_are_done_again(expert, whole, tmp_path):
    go("gail", expert, tmp_path / "cut", "--steps", "2")
    with open(tmp_path / "cut" / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 3, "phase": "train", "irl/gap": -1.0}) + "\n")
    assert figures(go("gail", expert, tmp_path / "cut", "--resume", "true")) == figures(whole("gail"))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--discount", "0.5"), "discount is 0.5, but the run was started with 0.9"),
        (("--steps", "4"), "has done its 4 steps"),
    ],
)
def test_a_run_that_cannot_go_on(flags, said, expert, whole, capsys):
    command = ["irl", str(CONFIGS / "tiny" / "irl_gail.yaml"), "--output", str(whole("gail").path), "--resume", "true"]
    assert main([*command, "--demonstrations", expert, *flags]) == 2
    assert said in capsys.readouterr().err


def test_without_demonstrations(tmp_path, capsys):
    config = str(CONFIGS / "tiny" / "irl_gail.yaml")
    assert main(["irl", config, "--output", str(tmp_path / "run")]) == 2
    assert "--demonstrations EXPERT.npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "change", "said"),
    [
        ("Pendulum-v1", {}, "has 3 numbers in an observation"),
        ("CartPole-v1", {"completion_ids": (-1,) * 12}, r"whole numbers (-1 to -1)"),
        ("CartPole-v1", {"completion_ids": (5,) * 12}, r"whole numbers (5 to 5)"),
    ],
)
def test_demonstrations_of_another_environment(env, change, said, tmp_path, capsys):
    policy = control_policy(env, horizon=12, hidden=(4,))
    (played,) = policy.sample([Prompt(id="e", text="e")], 1, SamplingConfig(max_new_tokens=12), seed=3)
    other = str(save_demonstrations(tmp_path / "other.npz", [replace(played, **change)]))
    command = ["irl", str(CONFIGS / "tiny" / "irl_airl.yaml"), "--output", str(tmp_path / "run")]
    assert main([*command, "--demonstrations", other]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("tree", ['{"mapping": [["step", 3]]}', '{"mapping": []}'])
def test_a_state_that_does_not_fit_costs_no_measurement(tree, expert, tmp_path, capsys):
    run = go("gail", expert, tmp_path / "run")
    (run.path / "checkpoints" / "resume" / "state.json").write_text(tree)
    command = ["irl", str(CONFIGS / "tiny" / "irl_gail.yaml"), "--output", str(run.path), "--demonstrations", expert]
    assert main([*command, "--resume", "true", "--steps", "6"]) == 2
    assert "Start the run anew, with --overwrite." in capsys.readouterr().err
    assert read(run.path).metrics == run.metrics


def test_a_reward_of_other_observations_says_so(expert, whole):
    reward = NetReward.load(whole("gail").path / "checkpoints" / "test_reward")
    policy = control_policy("CartPole-v1", visible=(0, 2))
    with pytest.raises(RewardError, match="is of 4 numbers in an observation, but episodes have 2"):
        reward.score(policy.sample([Prompt(id="p", text="")], 1, SamplingConfig(max_new_tokens=3), seed=0))
    text = Rollout(
        prompt=Prompt(id="p", text=""), completion_ids=(), mask=(), logps=(), text="b", stop=StopReason.EOS, group="p"
    )
    with pytest.raises(RewardError, match=r"has no observations.*scored by the kind text_reward"):
        reward.score([text])


def test_imitate_leaves_nothing_and_says_what_it_cost(expert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = IRLConfig(
        method="gail", environment="CartPole-v1", horizon=12, demonstrations=expert, steps=2, prompts_per_step=2
    )
    first, second = imitate(config), imitate(config)
    assert first.returns == second.returns
    assert len(first.returns) == 2 and len(first.final) == 1
    assert first.seconds > 0
    assert list(tmp_path.iterdir()) == []


def settings(**changes):
    return IRLConfig(**{"environment": "CartPole-v1", **changes})


def test_the_algorithm_pays_log_pi_once():
    """A PPO row charges a KL of its own at .05; with AIRL it is beta, in the reward, or nothing."""
    inside = algorithm_of(settings())
    assert (inside.kl.coef, inside.entropy, inside.credit.gamma) == (0.0, 0.0, 0.99)
    outside = algorithm_of(settings(pay="kl", beta=0.3, discount=0.9))
    assert (outside.kl.coef, outside.kl.place, outside.credit.gamma) == (0.3, "reward", 0.9)
    bonus = algorithm_of(settings(pay="entropy", beta=0.3))
    assert (bonus.kl.coef, bonus.entropy, bonus.credit.scale) == (0.0, 0.3, "none")
    text = algorithm_of(IRLConfig(beta=0.1, algorithm="rloo"))
    assert (text.kl.coef, text.credit.gamma) == (0.1, 1.0)
    assert algorithm_of(settings(method="gail")).kl.coef == 0.0
    held = algorithm_of(settings(method="gail", algorithm={"name": "ppo", "kl": {"coef": 0.2}}))
    assert held.kl.coef == 0.2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": {"name": "ppo", "entropy": 0.1}}, "algorithm.entropy is 0.1"),
        ({"algorithm": {"name": "ppo", "kl": {"coef": 1.0}}}, "algorithm.kl.coef is 1.0"),
        ({"pay": "kl", "beta": 0.5, "algorithm": {"name": "ppo", "kl": {"coef": 0.05}}}, "algorithm.kl.coef is 0.05"),
        ({"pay": "entropy", "algorithm": {"name": "ppo", "entropy": 0.01}}, "algorithm.entropy is 0.01"),
        ({"pay": "entropy", "algorithm": {"name": "ppo", "credit": {"scale": "whiten"}}}, "credit.scale is 'whiten'"),
        ({"algorithm": {"name": "ppo", "credit": {"gamma": 0.95}}}, "learnt with discount 0.99"),
    ],
)
def test_an_algorithm_with_another_fixed_point_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        algorithm_of(settings(**changes))


def learnt_reward(**settings):
    sizes = {"state_size": 4, "action_size": 2, "gamma": 0.9}
    return build([{"kind": "airl", "demonstrations": [], **sizes, **settings}, {"kind": "numeric", "weight": 0.1}])


@pytest.mark.parametrize(
    ("settings", "changes", "said"),
    [
        ({}, {}, "algorithm.credit.gamma is 1.0"),
        ({}, {"credit": {"gamma": 0.9}}, "more than once"),
        ({"pay": "kl"}, {"credit": {"gamma": 0.9}, "kl": {"coef": 0.0}}, "not at all"),
        (
            {"pay": "entropy"},
            {"credit": {"gamma": 0.9}, "kl": {"coef": 0.0}, "entropy": 1.0},
            "divided by their spread",
        ),
        ({}, {"credit": {"gamma": 0.9}, "kl": {"coef": 0.0}}, ""),
    ],
)
def test_any_recipe_can_ask_whether_log_pi_is_paid_once(settings, changes, said):
    algorithm = resolve({"name": "ppo", **changes})
    if not said:
        check_paid(learnt_reward(**settings), algorithm)
        return
    with pytest.raises(ConfigError, match=said):
        check_paid(learnt_reward(**settings), algorithm)


@pytest.mark.parametrize(
    ("changes", "recipe"),
    [
        ({}, "irl_control"),
        ({"method": "maxent", "environment": "maze:4x4"}, "irl_maxent"),
        ({"environment": ""}, "irl_text"),
        ({"environment": "", "method": "spin"}, "irl_text"),
    ],
)
def test_who_carries_it_out(changes, recipe):
    assert recipe_of(settings(**changes)) == f"prefrl.recipes.{recipe}"


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 0.0},
        {"method": "gcl", "train_horizon": 5},
        {"method": "airl", "discriminator": DiscriminatorConfig(fragment=5)},
        {"method": "gcl", "environment": "", "discriminator": DiscriminatorConfig(fragment=5)},
        {"method": "gcl", "train_horizon": 5, "discriminator": DiscriminatorConfig(fragment=6)},
        {"method": "maxent", "environment": ""},
        {"method": "spin"},
        {"method": "airl", "form": "logit"},
        {"resume": True, "overwrite": True},
    ],
)
def test_settings_that_cannot_work(changes):
    with pytest.raises(ConfigError, match="expected"):
        settings(**changes)


def test_recurrent_and_continuous_policies_learn_too(tmp_path):
    policy = control_policy("Pendulum-v1", horizon=10, hidden=(4,), seed=9)
    played = policy.sample([Prompt(id="e", text="e")], 4, SamplingConfig(max_new_tokens=10), seed=3)
    expert = str(save_demonstrations(tmp_path / "expert.npz", played))
    flags = ("--environment", "Pendulum-v1", "--horizon", "10", "--control.recurrent", "4", "--steps", "1")
    run = go("airl", expert, tmp_path / "run", *flags, "--control.distribution", "squashed")
    assert run.state == "finished"
    assert torch.isfinite(torch.tensor(run.series("irl/gap")[1])).all()


def test_a_setting_of_another_type_is_named():
    with pytest.raises(ConfigError, match=r"reward kind 'gail': .*Look at the types of its settings"):
        build({"kind": "gail", "demonstrations": [], "members": "x"})


def test_the_reference_stays_where_it_was_while_the_normaliser_moves(expert):
    """A policy that has not learnt is its reference, however it was measured; one that sees otherwise is not."""
    changes = {"horizon": 12, "demonstrations": expert, "prompts_per_step": 2, "steps": 2, "pay": "kl"}
    made = settings(**changes, control=ActorConfig(hidden=(4,)))
    study = prepare(made, algorithm_of(made))
    played = study.learner.engine.sample(episodes(2), 1, seed=3)
    rows = rows_of(played)
    before = study.learner.engine.logps(rows, "reference")
    assert all(torch.equal(a, b) for a, b in zip(before, study.learner.engine.logps(rows), strict=True))
    study.round(1)
    (kept,) = study.reward.buffer.rounds
    assert float(kept.log_ratios.abs().max()) < 1e-6
    assert all(torch.equal(a, b) for a, b in zip(before, study.learner.engine.logps(rows, "reference"), strict=True))
    study.learner.engine.reset()
    assert all(torch.equal(a, b) for a, b in zip(before, study.learner.engine.logps(rows), strict=True))


@pytest.mark.parametrize("pay", ["kl", "entropy"])
def test_log_pi_is_charged_on_the_scale_that_the_reward_is_paid_on(pay):
    beta = {"credit": {"gamma": 0.9, "scale": "none"}, "kl": {"coef": float(pay == "kl")}}
    algorithm = resolve({"name": "ppo", **beta, "entropy": float(pay == "entropy")})
    check_paid(learnt_reward(pay=pay), algorithm)
    scaled = ({"normalise_reward": True}, {"normalise": True}, {"normalise": "group"}, {"clip": [-1.0, 1.0]})
    for how in scaled:
        with pytest.raises(ConfigError, match=r"another measure. Leave (normalise_reward|normalise or clip) out"):
            check_paid(learnt_reward(pay=pay, **how), algorithm)
    inside = resolve({"name": "ppo", "credit": {"gamma": 0.9}, "kl": {"coef": 0.0}})
    for how in scaled:  # f and log pi together
        check_paid(learnt_reward(pay="reward", **how), inside)


def test_a_weight_changes_how_often_log_pi_is_paid():
    algorithm = resolve({"name": "ppo", "credit": {"gamma": 0.9}, "kl": {"coef": 0.0}})
    check_paid(learnt_reward(weight=1.0), algorithm)
    with pytest.raises(ConfigError, match=r"has weight 0\.5, with which log pi would not be paid once"):
        check_paid(learnt_reward(weight=0.5), algorithm)


def test_a_policy_that_changes_in_between_is_refused():
    algorithm = resolve({"name": "ppo", "credit": {"gamma": 0.9}, "kl": {"coef": 0.0}})
    with pytest.raises(ConfigError, match=r"control\.normalise would change it in between"):
        check_paid(learnt_reward(), algorithm, moving=True)
