"""`prefrl irl` on demonstrated texts, end to end on a model of a few thousand random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.config import IRLConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.run_folder import read
from prefrl.evaluate.statistics import wilson
from prefrl.model.critic import make_critic
from prefrl.model.load import load
from prefrl.parsing import parse
from prefrl.policy.algorithms import resolve
from prefrl.recipes import irl_text
from prefrl.recipes.irl import algorithm_of, check_log_pi
from prefrl.recipes.irl_text import check
from prefrl.recipes.irl_text_data import TextData
from prefrl.recipes.irl_text_report import ranking
from prefrl.recipes.irl_text_spin import pair_config
from prefrl.rewards.inverse.forms import LogPi
from prefrl.types import Completion, Prompt

CONFIGS = Path(__file__).parents[2] / "configs"
CLOCKS = ("time", "seconds", "tokens_per_second")


@pytest.fixture
def demos(write):
    return write("demos.jsonl", [{"prompt": f"Say {i}", "completion": f"{i}!"} for i in range(12)])


def go(method, model, demos, output, *flags):
    config = str(CONFIGS / "tiny" / f"irl_text_{method}.yaml")
    given = ("--policy.name", model, "--data.train", demos, "--output", str(output))
    assert main(["irl", config, *given, *flags]) == 0
    return read(output)


def figures(run, phases=("train", "eval")):
    lines = [line for line in run.metrics if line["phase"] in phases]
    return [{k: v for k, v in line.items() if k not in CLOCKS} for line in lines]


@pytest.mark.parametrize("method", ["airl", "gcl", "gail", "spin"])
def test_every_method(method, model, demos, tmp_path, write, capsys):
    run = go(method, model, demos, tmp_path / "one")
    assert run.state == "finished"
    assert (run.path / "report.html").stat().st_size > 10_000
    assert load(str(run.path / "checkpoints" / "final")).tokenizer.eos_token == "<|im_end|>"
    held_out = [line for line in run.metrics if line["phase"] == "eval"]
    assert all(line["nll"] > 0 for line in held_out)
    if method != "gail":
        assert 0.0 <= held_out[-1]["ranking/auroc/low"] <= held_out[-1]["ranking/auroc"] <= 1.0
    reward = run.path / "checkpoints" / "reward"
    assert reward.is_dir() == (method in ("airl", "gcl"))  # gail leaves none, spin's is the policy
    if reward.is_dir():
        rows = write("answers.jsonl", [{"prompt": "Say 3", "completion": text} for text in ("3!", "zzz")])
        spec = f"[{{kind: text_reward, path: {run.path}}}]"
        assert main(["score", "--data", rows, "--rewards", spec, "--output", str(tmp_path / "scores.jsonl")]) == 0
        assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 2
    assert figures(go(method, model, demos, tmp_path / "two")) == figures(run)


def test_plain_fine_tuning_stands_beside_it(model, demos, tmp_path):
    run = go("airl", model, demos, tmp_path / "out")
    summary = run.status["summary"]
    for when in ("start", "end", "plain_fine-tuning"):
        assert {f"{when}/independent/mean", f"{when}/nll"} <= set(summary)
    # Its start is the model as it was loaded, not the one that imitated.
    warm, plain = (figures(run, (phase,))[0]["nll"] for phase in ("warm_start", "sft"))
    assert warm == plain
    assert summary["plain_fine-tuning/nll"] != summary["end/nll"]


@pytest.mark.parametrize("method", ["airl", "gail", "spin"])
def test_a_resumed_run_is_the_run(method, model, demos, tmp_path):
    whole = go(method, model, demos, tmp_path / "whole", "--steps", "4", "--checkpoint_every", "2")
    go(method, model, demos, tmp_path / "parts", "--steps", "2", "--checkpoint_every", "2")
    resumed = go(method, model, demos, tmp_path / "parts", "--steps", "4", "--resume", "true")
    later = [line for line in figures(whole) if line["step"] > 2]
    assert method != "gail" or all(line["critic/drift"] > 0 for line in later if line["phase"] == "train")
    assert [line for line in figures(resumed) if line["step"] > 2] == later
    assert [line["step"] for line in figures(resumed, ("train",))] == [1, 2, 3, 4]


def test_a_critic_is_read_as_configured(model, demos, tmp_path, monkeypatch):
    made = []

    def noted(*given, **how):
        made.append(how["reading"])
        return make_critic(*given, **how)

    monkeypatch.setattr(irl_text, "make_critic", noted)
    algorithm = "{name: ppo, critic: {kind: separate, low: -2.0, high: 3.0, aggregate: min}, kl: {coef: 0.0}}"
    go("gail", model, demos, tmp_path / "out", "--algorithm", algorithm, "--steps", "1")
    assert (made[0].low, made[0].high, made[0].aggregate) == (-2.0, 3.0, "min")


def config(*flags, method="airl"):
    given = ["--method", method, "--data.train", "x.jsonl", "--algorithm", "rloo", *flags]
    parsed, _ = parse(IRLConfig, given, prog="irl")
    return parsed


def test_beta_is_the_kl_coefficient():
    made = config("--beta", "0.2")
    algorithm = algorithm_of(made)
    check(made, algorithm)
    assert (algorithm.kl.coef, algorithm.kl.place, algorithm.kl.estimator) == (0.2, "reward", "k1")
    with pytest.raises(ConfigError, match=r"algorithm.kl.coef is 0.05.*Leave algorithm.kl.coef out"):
        algorithm_of(config("--beta", "0.2", "--algorithm", "{name: rloo, kl: {coef: 0.05}}"))


@pytest.mark.parametrize(
    ("pay", "parts", "message"),
    [
        ("kl", {"kl": {"coef": 0.0}}, "not at all"),
        ("kl", {"kl": {"coef": 0.3}}, "in another measure"),
        ("reward", {"kl": {"coef": 0.1}}, "more than once"),
        ("kl", {"kl": {"coef": 0.1, "target": 4.0}}, "moves the KL coefficient away from beta"),
        ("kl", {"kl": {"coef": 0.1, "place": "loss"}, "credit": {"scale": "whiten"}}, "other units"),
    ],
)
def test_log_pi_is_paid_once(pay, parts, message):
    with pytest.raises(ConfigError, match=message):
        check_log_pi(LogPi(beta=0.1, pay=pay), resolve({"name": "rloo", **parts}))


def test_what_cannot_work_is_refused_before_anything_is_loaded():
    for flags, message in (
        (("--data.train", ""), "data.train is empty"),
        (("--algorithm", "dpo"), "compares or selects"),
        (("--text.warmup", "50"), "expected fewer than steps"),
        (("--pay", "entropy"), "pay is 'entropy'"),
    ):
        made = config(*flags)
        with pytest.raises(ConfigError, match=message):
            check(made, algorithm_of(made) if flags[0] != "--algorithm" else resolve("dpo"))


def test_spin_takes_pair_losses_against_a_reference():
    assert pair_config(config("--beta", "0.1", "--algorithm", "ipo", method="spin")).algorithm == {
        "name": "ipo",
        "pairs": {"beta": 0.1},
    }
    with pytest.raises(ConfigError, match=r"'simpo' does not. Use dpo, ipo, ld_dpo"):
        pair_config(config("--algorithm", "simpo", method="spin"))
    with pytest.raises(ConfigError, match=r"algorithm.pairs.beta is 0.5 and beta 0.1"):
        pair_config(config("--beta", "0.1", "--algorithm", "{name: dpo, pairs: {beta: 0.5}}", method="spin"))


def test_ranking_compares_within_prompts():
    """x: 3 beats 1 and ties 3; y: 0 loses to 1 and 2; z has no sample. Shares 3/4 and 0: mean 3/8."""
    found = ranking({"x": [3.0], "y": [0.0], "z": [9.0]}, {"x": [1.0, 3.0], "y": [1.0, 2.0]})
    assert found["auroc"] == pytest.approx(3 / 8)
    assert found["auroc/prompts"] == 2.0
    assert (found["auroc/low"], found["auroc/high"]) == wilson(0.75, 2)
    assert ranking({"x": [2.0]}, {"x": [1.0]})["auroc/low"] < 0.5  # one prompt is no certainty
    assert ranking({"z": [1.0]}, {}) == {}


def test_demonstrations_of_a_prompt_are_one_prompt():
    rows = [(Prompt(id=str(i), text=text), Completion(text="a")) for i, text in enumerate(("x", "y", "x"))]
    data = TextData(rows, [])
    assert [prompt.id for prompt in data.prompts] == ["0", "1"]
    assert data.summary() == "3 demonstrations of 2 prompts, 0 held out of 0 others"


def test_what_the_policy_could_never_write_is_counted(model, write, tmp_path, capsys):
    rows = [{"prompt": f"Say {i}", "completion": f"{i}!" if i else "0" * 50} for i in range(12)]
    path = write("long.jsonl", rows)
    config = str(CONFIGS / "tiny" / "irl_text_airl.yaml")
    given = ["irl", config, "--policy.name", model, "--data.train", path, "--output", str(tmp_path / "out")]
    assert main(given) == 2
    assert "51" in capsys.readouterr().err  # with its end of turn
    assert main([*given, "--overwrite", "true", "--data.max_dropped_fraction", "0.5"]) == 0
    assert "1 completion (sampling.max_new_tokens) longer than 8 tokens" in capsys.readouterr().out
