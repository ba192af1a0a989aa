"""`prefrl distill` end to end on tiny models: teachers of every kind, what they are shown, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tiny import byte_tokenizer, llama

from prefrl.cli import DEFAULTS, main
from prefrl.config import RLConfig, TeacherConfig
from prefrl.evaluate.run_folder import read
from prefrl.model.load import load
from prefrl.parsing import parse
from prefrl.recipes.teaching import privileged
from prefrl.types import Prompt

TINY = Path(__file__).parents[2] / "configs" / "tiny"


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A wider model with other weights and the very same tokenizer."""
    tokenizer = byte_tokenizer()
    path = tmp_path_factory.mktemp("teacher") / "model"
    llama(len(tokenizer), hidden=48, seed=1, eos=tokenizer.eos_token_id).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture
def prompts(write):
    rows = [{"prompt": [{"role": "user", "content": f"Say {i}"}], "answer": str(i)} for i in range(8)]
    return write("prompts.jsonl", rows)


@pytest.fixture
def go(model, prompts, tmp_path):
    """Run one of the tiny configurations; the finished run."""

    def go(config, name="out", *flags):
        output = tmp_path / name
        shared = ("--policy.name", model, "--data.train", prompts, "--output", str(output))
        assert main(["distill", str(TINY / config), *shared, *flags]) == 0
        return read(output)

    return go


@pytest.fixture
def fails(model, prompts, tmp_path, capsys):
    """Run with flags that must be refused; the one line that says why."""

    def fails(config, *flags):
        shared = ("--policy.name", model, "--data.train", prompts, "--output", str(tmp_path / "out"))
        assert main(["distill", str(TINY / config), *shared, *flags]) == 2
        error = capsys.readouterr().err
        assert error.startswith("prefrl: ") and error.count("\n") == 1
        return error

    return fails


def figures(run):
    clocks = ("time", "seconds", "tokens_per_second")
    return [{k: v for k, v in line.items() if k not in clocks} for line in run.metrics]


def test_a_teacher_alone(go, teacher, tmp_path):
    flags = ("--teacher.name", teacher)
    first, second = (go("distill.yaml", name, *flags) for name in ("one", "two"))
    assert first.state == "finished" and figures(first) == figures(second)
    assert load(str(tmp_path / "one" / "checkpoints" / "final")).tokenizer.eos_token == "<|im_end|>"
    steps, kl = first.series("kl/teacher", "eval")
    assert steps == [0, 2] and all(value > 0 for value in kl)
    assert first.status["summary"]["start/kl/teacher"] == kl[0]
    assert first.status["summary"]["end/kl/teacher"] == kl[1]
    # Nobody was rewarded: there is no reward to show, and no group to compare.
    assert not [name for phase in ("train", "eval") for name in first.names(phase) if name.startswith("reward")]
    assert not [name for name in first.names("train") if name.startswith("groups")]
    assert first.samples and "finished" in (first.path / "report.html").read_text()


def test_distillation_brings_the_policy_nearer(go, teacher):
    run = go("distill.yaml", "out", "--teacher.name", teacher, "--steps", "12", "--policy.lr", "1e-2")
    _, kl = run.series("kl/teacher", "eval")
    assert kl[1] < 0.7 * kl[0]


def test_by_sampled_tokens(go, teacher):
    run = go("distill.yaml", "out", "--teacher.name", teacher, "--algorithm.distill.form", "sampled")
    assert run.state == "finished" and len(run.series("kl/teacher", "eval")[1]) == 2


def test_self_distillation_with_solutions(go):
    run = go("opsd.yaml")
    _, kl = run.series("kl/teacher", "eval")
    assert kl[0] > 0  # the same weights, but the solution is in the teacher's prompt
    assert run.series("kl/teacher", "train")[1][0] > 0
    assert "reward/part/length_band" in run.names("eval")  # weight 0: measured, not paid


def test_the_base_of_an_adapter_teaches_with_solutions(go):
    run = go("opsd.yaml", "out", "--policy.lora", "2", "--teacher.name", "base")
    copied = go("opsd.yaml", "copied", "--policy.lora", "2")
    # A fresh adapter is 0, so its base is the policy as it starts: the same teacher, without a copy.
    assert run.series("kl/teacher", "eval")[1] == pytest.approx(copied.series("kl/teacher", "eval")[1], rel=1e-5)


def test_the_base_teaches_a_trained_adapter(go, model, teacher):
    trained = go("distill.yaml", "one", "--policy.lora", "2", "--policy.lr", "1e-2", "--teacher.name", teacher)
    flags = ("--policy.name", str(trained.path / "checkpoints" / "final"), "--teacher.name")
    runs = [go("distill.yaml", folder, *flags, name) for folder, name in (("base", "base"), ("other", model))]
    below, other = (run.series("kl/teacher", "eval")[1] for run in runs)
    assert below[0] > 1e-5  # the adapter moved away from its base, and comes from that very model
    assert below == pytest.approx(other, rel=1e-4)


def test_a_teacher_beside_a_reward(go, teacher):
    rewards = "[{kind: length_band, low: 3, high: 6, unit: characters}]"
    algorithm = "{name: grpo, group_size: 4, kl: {coef: 0.0}, distill: {coef: 0.1}}"
    run = go("distill.yaml", "out", "--teacher.name", teacher, "--rewards", rewards, "--algorithm", algorithm)
    assert {"reward/mean", "kl/teacher", "groups/mixed"} <= set(run.names("train"))
    assert {"reward/mean", "kl/teacher"} <= set(run.names("eval"))


def test_prompts_without_a_solution_are_left_out_and_counted(model, write, tmp_path, capsys):
    rows = [{"prompt": f"Say {i}", "answer": "" if i == 3 else i} for i in range(16)]  # numbers are solutions too
    flags = ("--policy.name", model, "--data.train", write("some.jsonl", rows), "--output", str(tmp_path / "out"))
    flags = (*flags, "--data.eval_fraction", "0", "--data.max_dropped_fraction", "0.1")
    assert main(["distill", str(TINY / "opsd.yaml"), *flags]) == 0
    assert "kept 15 of 16: 1 with an empty answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "has nothing to teach (KL 0)"),
        (("--teacher.name", "{model}"), "has nothing to teach (KL 0)"),
        (("--teacher.name", "{model}/"), "has nothing to teach (KL 0)"),
        (("--teacher.name", "base"), "no adapter to take off"),
        (("--teacher.name", "base", "--policy.lora", "2"), "has nothing to teach (KL 0)"),
        (("--teacher.name", "{model}", "--algorithm", "grpo"), "distill.coef is 0"),
        (("--teacher.name", "{model}", "--algorithm", "opsd"), "teacher.solution is empty"),
        (("--teacher.name", "{model}", "--teacher.solution", "answer"), "sees no solution"),
        (("--teacher.template", "{{prompt}}"), "a text with {prompt} and {solution} in it"),
    ],
)
def test_what_cannot_teach_is_refused(flags, says, fails, model, tmp_path):
    assert says in fails("distill.yaml", *(flag.format(model=model) for flag in flags))
    assert not (tmp_path / "out").exists()  # before anything is loaded or written


def test_another_tokenizer_is_refused(fails, tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    other = tmp_path / "other"
    llama(len(tokenizer), eos=tokenizer.eos_token_id).save_pretrained(other)
    tokenizer.save_pretrained(other)
    assert "different tokenizers" in fails("distill.yaml", "--teacher.name", str(other))


def test_a_missing_column_of_solutions_is_named(fails):
    error = fails("opsd.yaml", "--teacher.solution", "answers")
    assert "no such column" in error and "Did you mean 'answer'?" in error


@pytest.mark.parametrize(
    ("answer", "says"),
    [(" ", "2 of 8 prompts have an empty 'answer'"), (None, "2 of 8 prompts"), (["a"], "is a list; expected a text")],
)
def test_solutions_that_cannot_be_shown(answer, says, model, write, tmp_path, capsys):
    rows = [{"prompt": f"Say {i}", "answer": answer if i < 2 or isinstance(answer, list) else "x"} for i in range(8)]
    flags = ("--policy.name", model, "--data.train", write("bad.jsonl", rows), "--output", str(tmp_path / "out"))
    assert main(["distill", str(TINY / "opsd.yaml"), *flags, "--data.eval_fraction", "0"]) == 2
    assert says in capsys.readouterr().err


def test_a_solution_too_long_for_the_teacher_is_refused(fails):
    assert "limit of 60 tokens for prompt with solution" in fails(
        "opsd.yaml", "--data.max_prompt_tokens", "60", "--teacher.template", "{prompt} " + "x" * 60 + "{solution}"
    )


def test_the_template_stands_in_for_the_last_user_message_and_is_filled_once():
    shown = TeacherConfig(solution="answer", template="{prompt}|{solution}")
    system, reply = {"role": "system", "content": "s"}, {"role": "assistant", "content": "So"}
    asked = Prompt(
        id="a",
        messages=(system, {"role": "user", "content": "What is {solution}?"}, reply),
        columns={"answer": "{prompt} {x}", "tools": "[]"},
    )
    seen = privileged(asked, shown)
    assert seen.messages == (system, {"role": "user", "content": "What is {solution}?|{prompt} {x}"}, reply)
    assert seen.columns == asked.columns  # chat_template_kwargs and tools reach the teacher too
    assert asked.messages[1]["content"] == "What is {solution}?"
    assert privileged(Prompt(id="b", text="2+2=", columns={"answer": 4}), shown).text == "2+2=|4"


def test_defaults_say_what_they_need():
    config, _ = parse(RLConfig, [], prog="prefrl distill", defaults=DEFAULTS["distill"])
    assert config.algorithm == "opd" and config.teacher.name == ""
    changed, _ = parse(RLConfig, ["--algorithm.distill.form", "sampled"], prog="p", defaults=DEFAULTS["distill"])
    assert changed.algorithm == {"name": "opd", "distill": {"form": "sampled"}}
    assert "{solution}" in config.teacher.template


def test_the_resolved_configuration_is_kept(go, teacher):
    run = go("distill.yaml", "out", "--teacher.name", teacher)
    saved = json.dumps(run.config)
    assert teacher in saved and "{solution}" in saved
    assert all(math.isfinite(v) for v in run.status["summary"].values())
