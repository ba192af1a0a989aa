"""`prefrl yes` end to end on a tiny model: from a file, from sampled answers, as a reward, as a critic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import byte_tokenizer, llama

from prefrl.cli import main
from prefrl.evaluate.run_folder import read
from prefrl.model.language import LanguageModel
from prefrl.model.yes_probability import YesModel, load_yes_model
from prefrl.model.yes_record import FILE, YesRecord
from prefrl.types import Prompt

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def answers(write):
    rows = [
        {"prompt": f"Is {i} even", "completion": word, "outcome": float((i % 2 == 0) == (word == "aa"))}
        for i in range(24)
        for word in ("aa", "b")
    ]
    return write("answers.jsonl", rows)


def go(command, config, output, *flags):
    assert main([command, str(CONFIGS / config), "--output", str(output), *flags]) == 0
    return read(output)


def test_from_a_file(model, answers, tmp_path, capsys):
    flags = ("--model.name", model, "--data.train", answers)
    run = go("yes", "tiny/yes.yaml", tmp_path / "one", *flags)
    summary = run.status["summary"]
    assert {"auroc", "auroc_low", "auroc_high", "ece", "brier", "explained_variance", "mass"} <= set(summary)
    assert set(summary["before"]) == set(summary["trained"]) == set(summary["calibrated"])
    assert run.series("nll", "eval")[0] == [0, *range(10, 21, 10)] or len(run.series("nll", "eval")[0]) == 3
    assert "yesno_mass" in run.names("train")
    page = (run.path / "report.html").read_text()
    assert "Calibration" in page and "ok?" in page and 'src="http' not in page
    saved = json.loads((run.path / "checkpoints" / "final" / FILE).read_text())
    assert saved["question"] == "ok?" and saved["yes"] == ["+"] and saved["no"] == ["-"]
    assert saved["temperature"] == summary["calibration"]["temperature"]
    assert "yes: '+'" in capsys.readouterr().out
    again = go("yes", "tiny/yes.yaml", tmp_path / "two", *flags)
    assert again.series("loss") == run.series("loss")


def test_without_training_the_model_is_measured_as_it_is(model, answers, tmp_path):
    run = go("yes", "tiny/yes.yaml", tmp_path / "out", "--model.name", model, "--data.train", answers, "--epochs", "0")
    summary = run.status["summary"]
    assert summary["before"] == summary["trained"]
    assert not run.names("train")
    made = load_yes_model(str(tmp_path / "out"))
    assert made.record.question == "ok?"
    assert made.record.bias == summary["calibration"]["bias"]


def test_from_sampled_answers_and_as_a_reward_and_a_critic(model, write, tmp_path):
    prompts = write("prompts.jsonl", [{"prompt": f"Say {i}"} for i in range(8)])
    rewards = "[{kind: length_band, low: 2, high: 4, unit: characters}]"
    flags = ("--data.train", prompts, "--rewards", rewards, "--sampling.max_new_tokens", "4", "--positions", "1")
    go("yes", "tiny/yes.yaml", tmp_path / "yes", "--model.name", model, *flags)

    scored = tmp_path / "scored.jsonl"
    rows = write("rows.jsonl", [{"prompt": "Say 1", "completion": "ab"}, {"prompt": "Say 2", "completion": "c"}])
    source = f"[{{kind: 'yes', model: {tmp_path / 'yes'}}}]"
    assert main(["score", "--data", rows, "--rewards", source, "--output", str(scored)]) == 0
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    assert len(lines) == 2

    run = go(
        *("rl", "tiny/yes_critic.yaml", tmp_path / "rl", "--policy.name", model, "--data.train", prompts),
        *("--algorithm.critic.base", str(tmp_path / "yes"), "--rewards", "[{kind: regex, pattern: '[a-z]'}]"),
    )
    assert {"critic/explained_variance", "critic/drift", "critic/yesno_mass"} <= set(run.names("train"))
    assert run.series("critic/drift")[1][0] == 0.0 < run.series("critic/drift")[1][1]
    assert (run.path / "checkpoints" / "critic" / FILE).exists()
    explained, moved = (run.series(f"critic/{name}")[1] for name in ("explained_variance", "drift"))
    summary = run.status["summary"]
    ends = (explained[0], explained[-1], moved[-1])
    names = ("critic/explained_variance/start", "critic/explained_variance/end", "critic/drift")
    assert [summary[name] for name in names] == pytest.approx(ends)
    page = (run.path / "report.html").read_text()
    assert "critic/explained_variance/start" in page and "Drift of the critic" in page


@pytest.mark.parametrize(("level", "answered"), [("turn", 0), ("token", 5)])
def test_a_critic_without_positions_for_its_question_is_refused_at_the_start(
    level, answered, model, write, tmp_path, capsys
):
    """One position is missing: for the question after the prompt, or after all but the last token of an answer."""
    prompts = write("prompts.jsonl", [{"prompt": f"Say {i}"} for i in range(8)])
    tokenizer, record = byte_tokenizer(), YesRecord(question="ok?", yes=("+",), no=("-",))

    def asked(positions):
        net = llama(len(tokenizer), eos=tokenizer.eos_token_id, max_position_embeddings=positions)
        return YesModel(LanguageModel(net, tokenizer, name="few"), record)

    made = asked(1000)
    needed = 1000 - made.most_tokens(1000) + len(made.model.encode(Prompt(id="p", text="Say 1"))) + answered
    asked(needed - 1).save(tmp_path / "few")
    flags = ("--policy.name", model, "--data.train", prompts, "--algorithm.critic.base", str(tmp_path / "few"))
    command = ["rl", str(CONFIGS / "tiny/yes_critic.yaml"), "--output", str(tmp_path / "rl"), *flags]
    assert main([*command, "--algorithm.credit.level", level]) == 2
    assert "room for histories of" in capsys.readouterr().err
    assert not (tmp_path / "rl").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--low", "0.5"), "outside"),
        (("--yes_words", "['Y']", "--no_words", "['N']"), "only how 'yes' begins"),
        (("--yes_words", "[]"), "No spelling of yes is a single token"),
    ],
)
def test_what_cannot_be_is_refused(flags, said, model, answers, tmp_path, capsys):
    arguments = ["yes", str(CONFIGS / "tiny" / "yes.yaml"), "--output", str(tmp_path / "out"), *flags]
    assert main([*arguments, "--model.name", model, "--data.train", answers]) == 2
    assert said in capsys.readouterr().err


def test_rows_without_an_outcome_say_what_is_missing(model, write, tmp_path, capsys):
    file = write("bare.jsonl", [{"prompt": "a", "completion": "b"}])
    arguments = ["yes", str(CONFIGS / "tiny" / "yes.yaml"), "--output", str(tmp_path / "out")]
    assert main([*arguments, "--model.name", model, "--data.train", file]) == 2
    assert "one of outcome, reward, label, score" in capsys.readouterr().err
