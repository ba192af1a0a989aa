"""`prefrl.optimize` from Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import prefrl
from prefrl.config import DataConfig, ModelConfig, RLConfig, SamplingConfig
from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.evaluate.run_folder import read
from prefrl.recipes import api


def short(text, wanted=3):
    return -abs(len(text) - wanted)


@pytest.fixture
def policy(model):
    return prefrl.load(model)


def optimize(policy, prompts, reward, output, **more):
    small = {"steps": 1, "prompts_per_step": 2, "max_new_tokens": 4, "lr": 1e-2, "algorithm": "dr_grpo"}
    return prefrl.optimize(policy, prompts, reward, output=output, **{**small, **more})


def test_optimize_with_a_plain_function(policy, tmp_path, monkeypatch, capsys):
    before = [p.detach().clone() for p in policy.module.parameters()]
    run = optimize(policy, [f"Say {i}" for i in range(6)], short, tmp_path / "run")
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.module.parameters(), strict=True))
    assert run.path == tmp_path / "run"
    assert [line["phase"] for line in run.metrics] == ["eval", "train", "eval"]
    assert read(run.path).state == "finished"
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    assert config["rewards"] == [{"kind": "short"}]
    assert config["data"]["train"] == "6 prompts from Python"
    assert (config["policy"]["lr"], config["sampling"]["max_new_tokens"]) == (1e-2, 4)
    assert prefrl.load(str(run.path / "checkpoints" / "final"))
    opened = []
    monkeypatch.setattr(api.webbrowser, "open", opened.append)
    page = run.report()
    assert opened == [page.as_uri()] and page.is_file()
    assert str(page) in capsys.readouterr().out


def test_prompts_of_every_kind(policy, write, tmp_path):
    import datasets

    rows = [{"prompt": f"Say {i}", "wanted": i} for i in range(4)]
    given = [write("rows.jsonl", rows), rows, datasets.Dataset.from_list(rows)]
    given.append([prefrl.Prompt(id=str(i), text=row["prompt"], columns={"wanted": i}) for i, row in enumerate(rows)])
    config = DataConfig()
    read_back = [api._prompts(prompts, policy, config) for prompts in given]
    for prompts in read_back:
        assert [(p.text, p.columns["wanted"]) for p in prompts] == [(f"Say {i}", i) for i in range(4)]


def test_strings_become_user_messages_where_there_is_a_chat_template(policy):
    (prompt,) = api._prompts(["Say hi"], policy, DataConfig())
    assert prompt.messages == ({"role": "user", "content": "Say hi"},)
    policy.tokenizer.chat_template = None
    (prompt,) = api._prompts(["Say hi"], policy, DataConfig())
    assert prompt.text == "Say hi"


def test_held_out_prompts_of_ones_own(policy, tmp_path):
    run = optimize(policy, ["a", "b"], short, tmp_path / "run", held_out=["c"], eval_samples=3)
    answers = [row for row in read(run.path).samples if row["policy"] == "step 0"]
    assert {row["prompt"] for row in answers} == {"c"} and len(answers) == 3
    with pytest.raises(DataError, match="1 of 1 held-out rows have a prompt that is trained on"):
        optimize(policy, ["a", "b"], short, tmp_path / "other", held_out=["a"])


def test_policy_by_name_and_algorithm_in_parts(model, tmp_path):
    mapping = {"name": "rloo", "group_size": 2, "kl": {"coef": 0.0}}
    run = optimize(model, ["a", "b", "c"], short, tmp_path / "run", algorithm=mapping, eval_fraction=0.0)
    assert [line["phase"] for line in run.metrics] == ["train"]
    own = replace(prefrl.ALGORITHMS["grpo"], name="mine", group_size=2)
    run = optimize(model, ["a", "b", "c"], short, tmp_path / "own", algorithm=own, eval_fraction=0.0)
    assert yaml.safe_load((run.path / "config.yaml").read_text())["algorithm"]["name"] == "mine"


def test_a_critic_a_curriculum_and_a_teacher(policy, tmp_path):
    prompts = [{"prompt": f"Say {i}", "solution": str(i)} for i in range(6)]
    run = optimize(policy, prompts, short, tmp_path / "ppo", algorithm="ppo", curriculum={"kind": "retire"}, updates=2)
    assert {"critic/explained_variance", "feed/active"} <= run.metrics[1].keys()
    assert (run.path / "checkpoints" / "critic").is_dir()
    run = optimize(policy, prompts, None, tmp_path / "opsd", algorithm="opsd", teacher={"solution": "solution"})
    assert run.metrics[1]["kl/teacher"] > 0
    assert "reward/mean" not in run.metrics[1]
    with pytest.raises(ConfigError, match="rewards is empty"):
        optimize(policy, prompts, None, tmp_path / "none")


def test_a_run_goes_on_from_python_too(model, tmp_path):
    asked = [f"Say {i}" for i in range(6)]
    often = {"checkpoint_every": 1, "eval_samples": 1}
    whole = optimize(prefrl.load(model), asked, short, tmp_path / "whole", steps=4, **often)
    optimize(prefrl.load(model), asked, short, tmp_path / "parts", steps=2, **often)
    parts = optimize(prefrl.load(model), asked, short, tmp_path / "parts", steps=4, resume=True, **often)
    curves = [[line["reward/mean"] for line in run.metrics if line["phase"] == "train"] for run in (whole, parts)]
    assert len(curves[0]) == 4 and curves[0] == curves[1]
    weights = [prefrl.load(str(run.path / "checkpoints" / "final")).module for run in (whole, parts)]
    assert all(torch.equal(a, b) for a, b in zip(*(module.parameters() for module in weights), strict=True))


def test_episodes_in_an_environment(policy, tmp_path):
    from prefrl import rewards

    run = optimize(
        policy,
        "task:guessing",
        rewards.environment("success"),
        tmp_path / "run",
        held_out="task:guessing:held_out",
        environment="guessing",
        max_turns=2,
        algorithm={"name": "grpo", "group_size": 2},
    )
    assert run.metrics[1]["turns/mean"] == 2.0
    assert run.metrics[1]["stop/length"] == 1.0  # two turns of the four that the game has


def test_wrong_options(policy, tmp_path):
    with pytest.raises(ConfigError, match=r"no option 'stepz'.*"):
        optimize(policy, ["a"], short, tmp_path / "run", stepz=3)
    with pytest.raises(ConfigError, match="Did you mean 'max_new_tokens'"):
        optimize(policy, ["a"], short, tmp_path / "run", max_tokens=3)
    with pytest.raises(ConfigError, match=r"prefrl.load\(..., lora=4\)"):
        optimize(policy, ["a"], short, tmp_path / "run", lora=4)
    with pytest.raises(ConfigError, match="Did you mean 'grpo'"):
        optimize(policy, ["a"], short, tmp_path / "run", algorithm="grop")
    with pytest.raises(RewardError, match="expected a function"):
        optimize(policy, ["a"], "numeric", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_option_is_in_two_parts_of_the_configuration():
    parts = [ModelConfig, SamplingConfig, DataConfig, RLConfig]
    names = [name for part in parts for name in part.__dataclass_fields__]
    assert sorted(names) == sorted(set(names))


def test_public_names():
    from prefrl import rewards

    assert prefrl.rewards is rewards
    for name in prefrl.__all__:
        assert getattr(prefrl, name) is not None
    assert set(prefrl.__all__) <= set(dir(prefrl))
    assert isinstance(prefrl.__version__, str)
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = prefrl.optimise


def test_import_is_cheap():
    code = "import prefrl, sys; prefrl.Prompt; prefrl.rewards; print({'torch', 'transformers'} & set(sys.modules))"
    root = Path(prefrl.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_misspelt_choices_are_refused_from_python_too(policy, tmp_path):
    for options, says in (
        (
            {"curriculum": {"kind": "retired"}},
            "kind is 'retired'; valid: uniform, retire, staged. Did you mean 'retire'",
        ),
        ({"schedule": "lineer"}, "schedule is 'lineer'; valid: .* Did you mean 'linear'"),
        ({"teacher": {"nam": "x"}}, "optimize: teacher: unknown key 'nam'"),
    ):
        with pytest.raises(ConfigError, match=says):
            optimize(policy, ["a", "b"], short, tmp_path / "run", **options)


def test_a_row_of_the_table_is_saved_by_its_name(policy, tmp_path):
    from prefrl.policy.algorithms import ALGORITHMS

    run = optimize(policy, [f"Say {i}" for i in range(6)], short, tmp_path / "run", algorithm=ALGORITHMS["dr_grpo"])
    assert yaml.safe_load((run.path / "config.yaml").read_text())["algorithm"] == "dr_grpo"
