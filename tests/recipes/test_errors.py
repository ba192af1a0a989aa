"""What goes wrong for people: one line that says what to do, exit status 2, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.evaluate import files
from prefrl.evaluate.run_folder import read
from prefrl.rewards.functions import FunctionReward

TINY = Path(__file__).parents[2] / "configs" / "tiny"
REWARDS = """
import time

ready = []

def nan(text):
    return float("nan")

def raising(text):
    return {}["no such key"]

def hanging(text):
    time.sleep(0.6)
    return 1.0

def late(text):
    ready.append(text)
    return len(text) if len(ready) <= 80 else float("inf")

def needs(text, solution):
    return 1.0
"""


@pytest.fixture
def prompts(write):
    return write("prompts.jsonl", [{"prompt": f"Say {i}", "answer": str(i)} for i in range(8)])


@pytest.fixture
def functions(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(REWARDS)
    return str(path)


@pytest.fixture
def fails(capsys):
    """Run a command that must fail for a reason a person can read; its line."""

    def fails(*arguments):
        assert main([str(a) for a in arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith("prefrl: ") and error.count("\n") == 1, error
        return error

    return fails


def rl(model, prompts, output, *flags):
    data = ("--policy.name", model, "--data.train", prompts, "--data.eval_fraction", "0")
    return ("rl", TINY / "grpo.yaml", *data, "--output", output, *flags)


def test_missing_column(fails, model, write, tmp_path):
    data = write("data.jsonl", [{"question": "What?", "chosen": "this", "rejected": "that", "prmpt": "x"}] * 4)
    line = fails("rl", TINY / "grpo.yaml", "--policy.name", model, "--data.train", data, "--output", tmp_path / "o")
    assert "'prompt' is missing" in line and "Rename 'prmpt' to 'prompt'?" in line
    line = fails("sft", "--policy.name", model, "--data.train", data, "--output", tmp_path / "p")
    assert "'completion'" in line


def test_column_missing_for_the_reward(fails, model, prompts, functions, tmp_path):
    line = fails(*rl(model, prompts, tmp_path / "o", "--rewards", f"[{{kind: '{functions}:needs'}}]"))
    assert "asks for 'solution'" in line and "Columns: answer" in line


def test_empty_file(fails, model, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    line = fails("dpo", "--policy.name", model, "--data.train", tmp_path / "empty.jsonl", "--output", tmp_path / "o")
    assert "empty.jsonl is empty (0 bytes)" in line


def test_no_file_and_no_name(fails, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("{}")
    line = fails("reward", "--data.train", tmp_path / "promts.jsonl", "--output", tmp_path / "o")
    assert "does not exist" in line and "Did you mean 'prompts.jsonl'?" in line
    assert "--data.train" in fails("reward", "--output", tmp_path / "p")


def test_too_many_empty_completions(fails, model, write, tmp_path):
    rows = [{"prompt": f"p {i}", "completion": "" if i < 2 else "yes"} for i in range(10)]
    flags = ("--policy.name", model, "--data.train", write("demos.jsonl", rows), "--output", tmp_path / "o")
    line = fails("sft", TINY / "sft.yaml", *flags)
    assert "2 of 10 rows cannot be used" in line and "2 empty completion (first: row 1)" in line
    again = ("sft", TINY / "sft.yaml", *flags, "--data.max_dropped_fraction", 0.3)
    assert main([str(a) for a in again]) == 0  # in the same folder: what was refused left none


@pytest.mark.parametrize("command", ["sft", "reward", "dpo", "prm", "yes", "rl", "loop"])
def test_a_refused_run_leaves_nothing_in_the_way(command, fails, model, write, tmp_path):
    """Columns that no command can use."""
    data = write("data.jsonl", [{"question": "What?", "number": 3}] * 4)
    name = "model.name" if command in ("reward", "prm", "yes") else "policy.name"
    config = TINY / ("grpo.yaml" if command == "rl" else f"{command}.yaml")
    line = fails(command, config, f"--{name}", model, "--data.train", data, "--output", tmp_path / "o")
    assert "question" in line
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").iterdir())


def test_prompt_that_is_too_long(fails, model, prompts, tmp_path):
    line = fails(*rl(model, prompts, tmp_path / "o", "--data.max_prompt_tokens", "3"))
    assert "8 of 8 are longer than the limit of 3 tokens" in line and "Raise the limit to" in line


@pytest.mark.parametrize(
    ("name", "says"),
    [("nan", "the value is nan"), ("raising", "KeyError: 'no such key'"), ("hanging", "0.1 s")],
)
def test_reward_function_that_fails(name, says, fails, model, prompts, functions, tmp_path):
    rewards = f"[{{kind: '{functions}:{name}', timeout: 0.1}}]"
    line = fails(*rl(model, prompts, tmp_path / "o", "--rewards", rewards))
    assert f"reward '{name}' failed on 16 of 16 rollouts" in line
    assert says in line
    run = read(tmp_path / "o")
    assert run.state == "failed" and name in run.status["error"]


def test_reward_that_fails_late_leaves_what_was_measured(fails, model, prompts, functions, tmp_path):
    rewards = f"[{{kind: '{functions}:late', timeout: null}}]"
    line = fails(*rl(model, prompts, tmp_path / "o", "--rewards", rewards, "--steps", "9"))
    assert "the value is inf" in line
    run = read(tmp_path / "o")
    assert [row["step"] for row in run.metrics] == [1, 2, 3, 4, 5]  # 16 rollouts a step, 80 of them scored
    assert (run.skipped_metrics, run.skipped_samples) == (0, 0)


def test_wrong_model(fails, prompts, tmp_path):
    for number, name in enumerate(["smollm2-135", "no-such-org/no-such-model"]):
        line = fails(*rl(name, prompts, tmp_path / str(number)))
        assert f"Cannot load {name!r}" in line and "'smollm2-135m', the embedded model" in line
    assert "does not exist" in fails(*rl(tmp_path / "nowhere", prompts, tmp_path / "p"))


def test_unknown_key(fails, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("policy: {lrr: 1.0e-5}\n")
    line = fails("rl", file)
    assert f"{file}: unknown key 'policy.lrr'" in line and "Did you mean 'lr'?" in line
    assert "Did you mean '--policy.lr'?" in fails("rl", "--policy.lrr", "1")


def test_nothing_to_optimize_against(fails, tmp_path):
    assert "--rewards '[{kind: numeric" in fails("rl", "--data.train", "task:products", "--output", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_wrong_algorithm(fails, tmp_path):
    rewards = ("--rewards", "[{kind: numeric, column: answer}]", "--output", tmp_path / "o")
    assert "Did you mean 'grpo'?" in fails("rl", "--algorithm", "grop", *rewards)
    assert "no pair loss" in fails("dpo", "--algorithm", "grpo", "--output", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_held_out_data_that_is_trained_on(fails, model, prompts, tmp_path):
    line = fails(*rl(model, prompts, tmp_path / "o", "--data.eval", prompts))
    assert "8 of 8 held-out rows have a prompt that is trained on" in line


@pytest.mark.parametrize("what", ["reward", "policy"])
def test_evaluation_of_nothing(what, fails, tmp_path):
    rest = ("eval", "--what", what, "--output", tmp_path / "o")
    assert "--model" in fails(*rest)
    assert "--data.train" in fails(*rest, "--model", "runs/rl")
    if what == "policy":
        assert "--rewards" in fails(*rest, "--model", "runs/rl", "--data.train", "task:products")


def test_scoring_nothing(fails, prompts, tmp_path):
    rewards = ("--rewards", "[{kind: numeric, column: answer}]")
    assert "--rewards" in fails("score", "--data", prompts)
    assert "Type: --data FILE.jsonl" in fails("score", *rewards)
    assert "expected a .jsonl file" in fails("score", "--data", prompts, *rewards, "--output", tmp_path / "x.csv")
    assert "exists already" in fails("score", "--data", prompts, *rewards, "--output", prompts)


def test_folder_that_holds_a_run(fails, model, prompts, tmp_path):
    output = tmp_path / "o"
    assert main([str(a) for a in rl(model, prompts, output)]) == 0
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    line = fails(*rl(model, prompts, output))
    assert "already holds a run of kind 'rl'" in line and "--overwrite" in line
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before
    assert main([str(a) for a in rl(model, prompts, output, "--overwrite")]) == 0


class FullDisk:
    """A file that takes `room` more bytes, half a line included, and then no more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


def test_full_disk_while_measuring(fails, model, prompts, tmp_path, monkeypatch):
    """The disk fills up in the middle of the line of step 2."""

    def filling(path, *mode, **options):
        file = open(path, *mode, **options)  # noqa: SIM115 - its owner closes it
        begun = Path(path).name == "metrics.jsonl" and os.path.getsize(path) > 0
        return FullDisk(file, 20) if begun else file

    monkeypatch.setattr(files, "open", filling, raising=False)
    output = tmp_path / "o"
    line = fails(*rl(model, prompts, output))
    assert "No space left on device" in line and "Everything written so far is kept" in line
    run = read(output)
    assert run.state == "failed"
    assert [row["step"] for row in run.metrics] == [1]
    assert run.skipped_metrics == 0


def test_full_disk_while_saving(fails, model, prompts, tmp_path, monkeypatch):
    import safetensors.torch

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full)
    assert safetensors.torch.save_file is not full
    line = fails(*rl(model, prompts, tmp_path / "o"))
    assert "No space left on device" in line and "What was written before is untouched" in line
    run = read(tmp_path / "o")
    assert run.state == "failed" and len(run.metrics) == 2
    assert list((tmp_path / "o" / "checkpoints").iterdir()) == []


def test_full_disk_while_scoring(fails, write, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "replace", full)
    data, output = write("demos.jsonl", [{"prompt": "p", "completion": "yes"}]), tmp_path / "scores.jsonl"
    assert "No space left" in fails("score", TINY / "score.yaml", "--data", data, "--output", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos.jsonl"]
    assert json.loads(Path(data).read_text())["completion"] == "yes"


def test_interrupted(model, prompts, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(FunctionReward, "score", stop)
    functions = tmp_path / "mine.py"
    functions.write_text(REWARDS)
    arguments = rl(model, prompts, tmp_path / "o", "--rewards", f"[{{kind: '{functions}:nan'}}]")
    assert main([str(a) for a in arguments]) == 130
    assert capsys.readouterr().err == "prefrl: interrupted; everything written so far is kept.\n"
    assert read(tmp_path / "o").status["error"] == "interrupted"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--environment", "guesing"), "Did you mean 'guessing'"),
        (("--algorithm", "reinforce", "--updates", "2"), "has no importance ratio"),
        (("--algorithm", "ppo", "--algorithm.critic.kind", "lora"), "a second adapter, but the policy has none"),
        (("--algorithm", "ppo", "--algorithm.critic.warmup", "9", "--steps", "3"), "the policy would never learn"),
        (("--updates", "0"), "updates is 0; expected 1 or more"),
        (("--eval_samples", "0"), "eval_samples is 0; expected 1 or more"),
    ],
)
def test_what_no_run_could_begin_with_leaves_no_folder(flags, says, tmp_path, capsys):
    output = tmp_path / "run"
    rewards = ("--rewards", "[{kind: exact, column: answer}]")
    assert main(["rl", "--data.train", "task:products", "--output", str(output), *rewards, *flags]) == 2
    assert says in capsys.readouterr().err
    assert not output.exists()


def test_several_processes_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["sft", str(TINY / "sft.yaml"), "--output", str(tmp_path / "run")]) == 2
    assert "WORLD_SIZE is 2: several processes were started" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
