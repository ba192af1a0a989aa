"""Every recipe end to end through the command line, on a model of a few thousand random weights."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from prefrl.cli import COMMANDS, main
from prefrl.evaluate.run_folder import read
from prefrl.model.load import load
from prefrl.model.reward_model import load_reward_model
from prefrl.parsing import parse
from prefrl.recipes.common import batches, verifier_metrics
from prefrl.rollout.environments import find_environment
from prefrl.types import Score

CONFIGS = Path(__file__).parents[2] / "configs"
ALGORITHMS = (
    *("reinforce", "reinforce_pp", "rloo", "ppo", "grpo", "dr_grpo"),
    *("dapo", "cispo", "gspo", "ctpo", "full_ratio"),
)


@pytest.fixture
def pairs(write):
    rows = [{"prompt": f"Say {i}", "chosen": f"{i} it is", "rejected": "no" * (i % 3 + 1)} for i in range(12)]
    return write("pairs.jsonl", rows)


@pytest.fixture
def demos(write):
    return write("demos.jsonl", [{"prompt": f"Say {i}", "completion": f"{i} it is"} for i in range(12)])


@pytest.fixture
def prompts(write):
    rows = [{"prompt": [{"role": "user", "content": f"Say {i}"}], "answer": str(i)} for i in range(8)]
    return write("prompts.jsonl", rows)


def go(command, config, output, *flags):
    assert main([command, str(CONFIGS / config), "--output", str(output), *flags]) == 0
    return read(output)


def figures(run):
    """The metrics of a run without what a clock says."""
    clocks = ("time", "seconds", "tokens_per_second")
    return [{k: v for k, v in line.items() if k not in clocks} for line in run.metrics]


def check_folder(run, *, samples=False):
    assert run.state == "finished"
    for name in ("config.yaml", "environment.json", "metrics.jsonl"):
        assert (run.path / name).stat().st_size > 0, name
    assert bool(run.samples) == samples
    page = (run.path / "report.html").read_text()
    assert "finished" in page and "running" not in page
    assert 'src="http' not in page and 'href="http' not in page


def check_policy(run):
    check_folder(run, samples=run.kind == "rl")
    assert run.kind in ("rl", "sft", "dpo")
    assert load(str(run.path / "checkpoints" / "final")).tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rl(algorithm, model, prompts, tmp_path, capsys):
    flags = ("--policy.name", model, "--data.train", prompts)
    first, second = (go("rl", f"tiny/{algorithm}.yaml", tmp_path / name, *flags) for name in ("one", "two"))
    check_policy(first)
    assert figures(first) == figures(second)
    assert first.samples == second.samples
    assert [line["step"] for line in first.metrics if line["phase"] == "train"] == [1, 2]
    assert [line["step"] for line in first.metrics if line["phase"] == "eval"] == [0, 2]
    assert set(first.status["summary"]) >= {"start/reward/mean", "end/reward/mean"}
    printed = capsys.readouterr().out
    assert f"Run folder: {tmp_path / 'one'}" in printed
    assert f"Report: {tmp_path / 'one' / 'report.html'}" in printed


def test_another_seed_draws_other_answers(model, prompts, tmp_path):
    # One prompt, so that its order cannot be what differs.
    flags = ("--policy.name", model, "--data.train", prompts, "--data.limit", "1", "--prompts_per_step", "1")
    flags = (*flags, "--data.eval_fraction", "0", "--steps", "1")
    runs = [go("rl", "tiny/grpo.yaml", tmp_path / seed, *flags, "--seed", seed) for seed in ("0", "1")]
    first, second = ([row["completion"] for row in run.samples] for run in runs)
    assert first != second


def test_rl_with_a_verifier(model, tmp_path):
    run = go("rl", "tiny/products.yaml", tmp_path / "out", "--policy.name", model)
    check_policy(run)
    held_out = [line for line in run.metrics if line["phase"] == "eval"]
    assert [line["accuracy"] for line in held_out] == [0.0, 0.0]  # random weights multiply nothing
    assert "parse_rate" in held_out[0]


@pytest.mark.parametrize(
    ("environment", "held_out", "reward"),
    # What the broken files pass of their tests, as random weights repair nothing.
    [("calculator", 3, 0.0), ("repair", 4, (1 / 5 + 4 / 6 + 2 / 5 + 4 / 6) / 4)],
)
def test_rl_in_an_environment(environment, held_out, reward, model, tmp_path):
    run = go("rl", f"tiny/{environment}.yaml", tmp_path / "out", "--policy.name", model)
    check_policy(run)
    version = find_environment(environment).version
    terms = {"name": environment, "version": version, "max_turns": 2, "turn_tokens": 4, "budget": 0}
    assert run.environment["episodes"] == terms
    assert [row["environment"] for row in run.samples] == [terms] * len(run.samples)
    assert len([row for row in run.samples if row["policy"] == "step 0"]) == held_out
    assert run.status["summary"]["start/reward/mean"] == pytest.approx(reward)


def test_rl_with_fewer_prompts_than_a_step_takes(model, prompts, tmp_path):
    flags = ("--policy.name", model, "--data.train", prompts, "--data.limit", "3", "--prompts_per_step", "5")
    run = go("rl", "tiny/grpo.yaml", tmp_path / "out", *flags, "--data.eval_fraction", "0")
    check_policy(run)
    assert "end/reward/mean" not in run.status["summary"]


def test_rl_against_a_reward_model(model, reward_model, prompts, tmp_path):
    rewards = f"[{{kind: bradley_terry, path: {reward_model}, weight: 0.5}}, {{kind: numeric, column: answer}}]"
    flags = ("--policy.name", model, "--data.train", prompts, "--rewards", rewards)
    run = go("rl", "tiny/rloo.yaml", tmp_path / "out", *flags)
    assert {"reward/part/bradley_terry", "reward/part/numeric"} <= set(run.names("train"))


def test_sft(model, demos, tmp_path):
    flags = ("--policy.name", model, "--data.train", demos)
    first, second = (go("sft", "tiny/sft.yaml", tmp_path / name, *flags) for name in ("one", "two"))
    check_policy(first)
    assert figures(first) == figures(second)
    steps, nll = first.series("nll", "eval")
    assert steps[0] == 0 and len(steps) == 3  # before, and after each of two passes
    assert nll[-1] < nll[0]
    assert first.status["summary"]["eval/nll"] == nll[-1]


def test_sft_on_plain_texts_holds_out_texts(model, write, tmp_path):
    texts = write("texts.jsonl", [{"text": f"Once upon a time {i}"} for i in range(8)])
    run = go("sft", "tiny/sft.yaml", tmp_path / "out", "--policy.name", model, "--data.train", texts)
    assert run.series("nll", "eval")[0][0] == 0


def test_reward_model(model, pairs, tmp_path):
    flags = ("--model.name", model, "--data.train", pairs)
    first, second = (go("reward", "tiny/reward.yaml", tmp_path / name, *flags) for name in ("one", "two"))
    check_folder(first)
    assert figures(first) == figures(second)
    assert first.metrics[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)  # the head starts at 0
    assert {"accuracy", "baselines"} <= set(first.status["summary"])
    assert load_reward_model(str(first.path / "checkpoints" / "final")).is_decoder


def test_reward_model_without_held_out_pairs(model, pairs, tmp_path):
    flags = ("--model.name", model, "--data.train", pairs, "--data.eval_fraction", "0")
    run = go("reward", "tiny/reward.yaml", tmp_path / "out", *flags)
    check_folder(run)
    assert "train/loss" in run.status["summary"]


@pytest.mark.parametrize("lora", [0, 2])
def test_dpo_starts_at_log_2_from_anywhere(lora, model, pairs, tmp_path):
    flags = ("--policy.name", model, "--data.train", pairs, "--policy.lora", str(lora))
    first, second = (go("dpo", "tiny/dpo.yaml", tmp_path / name, *flags) for name in ("one", "two"))
    check_policy(first)
    assert figures(first) == figures(second)
    assert first.metrics[0]["loss"] == pytest.approx(0.693147, abs=1e-5)
    assert first.series("loss")[1][-1] < 0.693
    # The trained policy is the next run's start, and so its reference: the loss is log 2 again.
    trained = str(first.path / "checkpoints" / "final")
    again = go("dpo", "tiny/dpo.yaml", tmp_path / "again", *flags[2:4], "--policy.name", trained)
    assert again.metrics[0]["loss"] == pytest.approx(0.693147, abs=1e-5)


def test_score_keeps_the_rows(demos, tmp_path, capsys):
    output = tmp_path / "scores" / "scores.jsonl"
    assert main(["score", str(CONFIGS / "tiny/score.yaml"), "--data", demos, "--output", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert rows[0] == {
        "prompt": "Say 0",
        "completion": "0 it is",  # 7 characters: 1 above the band [3, 6], whose slopes are 3 wide
        "score": {"value": pytest.approx(2 / 3), "parts": {"length": 7.0}, "error": None},
    }
    assert [row["prompt"] for row in rows] == [f"Say {i}" for i in range(12)]
    values = [row["score"]["value"] for row in rows]
    assert values == pytest.approx([2 / 3] * 10 + [1 / 3] * 2)  # "10 it is" and "11 it is" are one character longer
    table = capsys.readouterr().out
    assert "length_band" in table and "0.611" in table  # 10 rows of 2/3 and 2 of 1/3


def test_score_of_both_sides_and_of_rows_that_cannot_be_scored(write, tmp_path, capsys):
    functions = tmp_path / "mine.py"
    code = "def known(text, key):\n    return 1 / 0 if text == '[/?]' else {'reward': len(text), 'key': key}\n"
    functions.write_text(code)
    rows = [{"prompt": "p", "chosen": "long", "rejected": "[/?]", "key": 1.0, "id": f"{i}"} for i in range(40)]
    rows[0]["rejected"], rows[1]["chosen"] = "no", ""
    data, output = write("pairs.jsonl", rows), tmp_path / "scores.jsonl"
    flags = ("--data", data, "--output", str(output), "--rewards", f"[{{kind: '{functions}:known'}}]")
    assert main(["score", *flags]) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert found[0]["chosen_score"] == {"value": 4.0, "parts": {"key": 1.0}, "error": None}
    assert found[0]["rejected_score"]["value"] == 2.0
    assert found[1]["chosen_score"] == {"value": None, "parts": {}, "error": "the row could not be read"}
    assert found[2]["rejected_score"]["value"] is None
    assert found[2]["rejected_score"]["error"].startswith("ZeroDivisionError")
    assert len(found) == 40
    printed = " ".join(capsys.readouterr().out.split())
    assert "kept 39 of 40: 1 empty completion" in printed
    assert "chosen scores higher in 1 of 1 pairs" in printed


@pytest.mark.parametrize(
    ("rewards", "says"),
    [
        ("[{kind: length_band, low: 1, high: 9, unit: tokens}]", "tokens"),
        ("[{kind: '{file}:ids'}]", "completion_ids"),
    ],
)
def test_score_refuses_rewards_of_tokens(rewards, says, demos, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def ids(completion_ids):\n    return len(completion_ids)\n")
    assert main(["score", "--data", demos, "--rewards", rewards.replace("{file}", str(file))]) == 2
    assert says in capsys.readouterr().err


def test_evaluation_of_a_reward_model(reward_model, pairs, write, tmp_path, capsys):
    others = [{"prompt": f"o {i}", "chosen": "yes", "rejected": "no"} for i in range(4)]
    baseline = write("other.jsonl", others)
    flags = ("--model", reward_model, "--data.train", pairs, "--baseline", baseline)
    run = go("eval", "tiny/eval_reward.yaml", tmp_path / "out", *flags)
    check_folder(run, samples=True)
    summary = run.status["summary"]
    assert summary["accuracy_counts"][1] == 12  # all pairs, none held out
    assert {"longer wins", "shorter wins"} < set(summary["baselines"])  # and those fitted on the other pairs
    assert "accuracy" in capsys.readouterr().out
    assert len(run.samples) == 24
    right = sum(row["won"] for row in run.samples if row["policy"] == "chosen")
    assert right == summary["accuracy_counts"][0]


def test_evaluation_refuses_a_baseline_fitted_on_the_evaluation(reward_model, pairs, tmp_path, capsys):
    flags = ("--model", reward_model, "--data.train", pairs, "--baseline", pairs, "--output", str(tmp_path / "out"))
    assert main(["eval", *flags]) == 2
    assert "12 of 12" in capsys.readouterr().err


def test_evaluation_of_a_policy_against_itself_ties(model, prompts, tmp_path, capsys):
    flags = ("--model", model, "--against", model, "--data.train", prompts)
    run = go("eval", "tiny/eval_policy.yaml", tmp_path / "out", *flags)
    check_folder(run, samples=True)
    wins = run.status["summary"]["wins"]
    assert (wins["rate"], wins["ties"], wins["unscored"]) == (0.5, 16, 0)  # 8 prompts, 2 samples each
    assert wins["interval"][0] < 0.5 < wins["interval"][1]
    assert "50.0%" in capsys.readouterr().out


def test_evaluation_of_a_policy_alone(model, prompts, tmp_path):
    run = go("eval", "tiny/eval_policy.yaml", tmp_path / "out", "--model", model, "--data.train", prompts)
    assert "wins" not in run.status["summary"]
    assert run.status["summary"]["policy"]["reward/mean"] == run.series("reward/mean", "eval")[1][0]


def command_of(path):
    """The command that the comment at the top of a configuration says to type."""
    told = re.search(rf"prefrl (\w+) configs/{re.escape(str(path.relative_to(CONFIGS)))}", path.read_text())
    assert told, f"{path} does not say how to run it"
    return told[1]


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: str(p.relative_to(CONFIGS)))
def test_every_configuration_is_valid(path):
    from prefrl import config
    from prefrl.policy.algorithms import resolve

    command = command_of(path)
    parsed, _ = parse(getattr(config, COMMANDS[command][1]), [str(path)], prog=command)
    assert not hasattr(parsed, "algorithm") or resolve(parsed.algorithm)


def test_batches_bring_every_item_once_a_pass():
    feed = batches(range(5), 2, seed=0)
    drawn = [item for _ in range(5) for item in next(feed)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == [0, 1, 2, 3, 4]
    larger = next(batches(range(3), 7, seed=0))
    assert sorted(larger[:3]) == sorted(larger[3:6]) == [0, 1, 2]


def test_a_verifier_that_only_measures_may_fail_on_some():
    judged = Score(value=1.0, parts={"numeric/parsed": 1.0, "numeric/correct": 1.0})
    failed = Score(value=0.0, parts={"numeric/error": 1.0})
    assert verifier_metrics([judged, failed]) == {"accuracy": 1.0, "parse_rate": 1.0, "accuracy_given_parsed": 1.0}


def test_partial_credit_is_no_accuracy():
    half = Score(value=0.5, parts={"parsed": 1.0, "strict": 0.0, "fraction": 0.5})
    whole = Score(value=1.0, parts={"parsed": 1.0, "strict": 1.0, "fraction": 1.0})
    unreadable = Score(value=0.0, parts={"parsed": 0.0})
    found = verifier_metrics([half, whole, unreadable, whole])
    assert found == {"accuracy": 0.5, "parse_rate": 0.75, "accuracy_given_parsed": 2 / 3}
    assert verifier_metrics([Score(value=1.0, parts={"parsed": 1.0})]) == {"parse_rate": 1.0}
