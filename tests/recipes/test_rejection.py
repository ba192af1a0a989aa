"""Rounds of sampling, selection and fine-tuning, through the command line and piece by piece."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import rollout

from prefrl.cli import main
from prefrl.config import RejectionConfig
from prefrl.data.formats import to_completions
from prefrl.data.tables import load_table
from prefrl.errors import ConfigError
from prefrl.evaluate.run_folder import read
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.policy.optimizer import learn_completions
from prefrl.recipes import rejection
from prefrl.recipes.common import Checked
from prefrl.recipes.rejection import select
from prefrl.types import Score, StopReason

TINY = Path(__file__).parents[2] / "configs" / "tiny" / "rejection.yaml"


@pytest.fixture
def prompts(write):
    rows = [{"prompt": [{"role": "user", "content": f"Say {i}"}], "answer": str(i)} for i in range(20)]
    return write("prompts.jsonl", rows)


def go(model, prompts, output, *flags):
    return main(
        ["rejection", str(TINY), "--policy.name", model, "--data.train", prompts, "--output", str(output), *flags]
    )


def weights(path):
    return [p.detach() for p in load(str(path)).module.parameters()]


def train(run, name):
    return run.series(name)[1]


def scored(*items):
    """Rollouts and scores of (prompt, token ids, reward); a reward of None could not be scored."""
    rollouts = [rollout(tokens, group=name) for name, tokens, _ in items]
    return rollouts, [Score.failed("why") if reward is None else Score(value=reward) for *_, reward in items]


def kept(selection):
    return [(r.prompt.id, r.completion_ids, s.total) for r, s in zip(selection.rollouts, selection.scores, strict=True)]


ITEMS = [
    ("a", (1,), 0.5),
    ("a", (2,), 1.0),
    ("a", (1,), 0.5),  # said before
    ("a", (3,), 0.4),
    ("b", (1,), 0.5),  # of another prompt
    ("b", (4,), None),
    ("c", (5,), 0.1),
    ("c", (6,), 0.1),
]


def test_select_above_a_threshold():
    selection = select(*scored(*ITEMS), threshold=0.5)
    assert kept(selection) == [("a", (2,), 1.0), ("a", (1,), 0.5), ("b", (1,), 0.5)]
    assert selection.metrics == pytest.approx(
        {
            "accept/fraction": 4 / 7,  # of the scored ones
            "accept/distinct": 3 / 4,
            "accept/coverage": 2 / 3,
            "accept/kept": 3.0,
            "accept/truncated": 0.0,
            "accept/highest": 1.0,
            "accept/threshold": 0.5,
        }
    )


def test_select_the_best_of_each_prompt():
    selection = select(*scored(*ITEMS), threshold=None)
    assert kept(selection) == [("a", (2,), 1.0), ("b", (1,), 0.5), ("c", (5,), 0.1), ("c", (6,), 0.1)]
    assert "accept/threshold" not in selection.metrics
    assert selection.metrics["accept/coverage"] == 1.0


def test_at_most_so_many_a_prompt_and_the_best_of_them():
    items = [("a", (k,), 0.5 + 0.1 * (k in (3, 4))) for k in range(6)] + [("b", (7,), 0.5)]
    selection = select(*scored(*items), threshold=0.5, limit=3)
    assert [ids for _, ids, _ in kept(selection)] == [(3,), (4,), (0,), (7,)]
    assert selection.metrics["accept/kept"] == 4.0
    assert selection.metrics["accept/fraction"] == 1.0


def test_select_counts_what_was_cut_off_and_takes_nothing_without_tokens():
    whole, cut, empty = (
        rollout((1,), group="a"),
        rollout((2,), group="a", stop=StopReason.LENGTH),
        rollout((), group="b"),
    )
    selection = select([whole, cut, empty], [Score(value=1.0)] * 3, threshold=1.0)
    assert selection.metrics["accept/truncated"] == 0.5
    assert selection.metrics["accept/coverage"] == 0.5
    assert len(selection.rollouts) == 2


def test_nothing_accepted_is_no_error_of_the_selection():
    selection = select(*scored(*ITEMS), threshold=2.0)
    assert selection.rollouts == [] and selection.metrics["accept/highest"] == 1.0


def test_rounds_end_to_end(model, prompts, tmp_path, capsys):
    for name in ("one", "two"):
        assert go(model, prompts, tmp_path / name) == 0
    first, second = read(tmp_path / "one"), read(tmp_path / "two")
    clocks = ("time", "seconds")
    assert [{k: v for k, v in line.items() if k not in clocks} for line in first.metrics] == [
        {k: v for k, v in line.items() if k not in clocks} for line in second.metrics
    ]
    assert first.state == "finished" and first.kind == "rejection"
    assert train(first, "round") == [1.0, 2.0]
    assert first.series("round", "eval")[1] == [0.0, 1.0, 2.0]
    updates = first.series("nll")[0]
    assert updates == list(range(1, len(updates) + 1))
    assert first.series("round", "eval")[0] == [0, first.series("round")[0][1], updates[-1]]
    assert {"accept/fraction", "accept/kept", "accept/distinct", "accept/coverage"} <= set(first.names())
    assert {row["policy"] for row in first.samples} >= {"round 0", "round 2", "kept in round 1"}
    assert "eval/reward/mean" in first.status["summary"] and "stopped" not in first.status["summary"]
    page = (first.path / "report.html").read_text()
    assert "finished" in page and 'src="http' not in page
    assert load(str(first.path / "checkpoints" / "final")).tokenizer.eos_token == "<|im_end|>"
    assert "Round 2: held-out reward" in capsys.readouterr().out


def test_what_was_kept_can_be_read_and_trained_on(model, prompts, tmp_path):
    assert go(model, prompts, tmp_path / "out") == 0
    path = tmp_path / "out" / "kept" / "round_1.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    run = read(tmp_path / "out")
    assert len(rows) == train(run, "accept/kept")[0]
    assert set(rows[0]) == {"id", "prompt", "completion", "reward", "stop"}
    assert all(row["reward"] >= 0.5 for row in rows)
    assert max(sum(row["id"] == name for row in rows) for name in {row["id"] for row in rows}) <= 2
    assert len(to_completions(load_table(str(path))).items) == len(rows)
    output = str(tmp_path / "sft")
    assert main(["sft", "--policy.name", model, "--data.train", str(path), "--output", output]) == 0


@pytest.mark.parametrize("restart", ["true", "false"])
def test_a_round_begins_at_the_start_or_goes_on(restart, model, prompts, tmp_path, monkeypatch):
    before = []  # the weights before every update

    def spy(engine, rows):
        before.append(engine.snapshot())
        return learn_completions(engine, rows)

    monkeypatch.setattr(rejection, "learn_completions", spy)
    assert go(model, prompts, tmp_path / "out", "--restart", restart) == 0
    second = int(read(tmp_path / "out").series("round")[0][1])  # updates made before round 2
    assert 0 < second < len(before)
    assert any(not torch.equal(a, b) for a, b in zip(before[0], before[second - 1], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before[0], before[second], strict=True)) == (restart == "true")


def test_thresholds_rise_and_the_last_one_holds(model, prompts, tmp_path):
    assert go(model, prompts, tmp_path / "out", "--rounds", "3", "--thresholds", "[0.2, 0.6]") == 0
    assert train(read(tmp_path / "out"), "accept/threshold") == [0.2, 0.6, 0.6]


def test_a_first_round_without_anything_accepted_says_what_to_do(model, prompts, tmp_path, capsys):
    assert go(model, prompts, tmp_path / "out", "--thresholds", "[3]") == 2
    error = capsys.readouterr().err
    assert "accepted none of its completions: the highest reward is" in error and "the threshold 3" in error
    assert "Lower thresholds" in error and error.count("\n") == 1
    run = read(tmp_path / "out")
    assert run.state == "failed" and train(run, "accept/kept") == [0.0]


def test_a_later_round_without_anything_accepted_keeps_the_weights(model, prompts, tmp_path, capsys):
    assert go(model, prompts, tmp_path / "one", "--rounds", "1") == 0
    capsys.readouterr()
    assert go(model, prompts, tmp_path / "two", "--thresholds", "[0.5, 3]") == 0
    run = read(tmp_path / "two")
    assert run.state == "finished"
    assert run.status["summary"]["stopped"].startswith("Round 2 accepted none of its completions")
    assert "The weights of round 1 are kept" in " ".join(capsys.readouterr().out.split())
    pairs = zip(*(weights(tmp_path / name / "checkpoints" / "final") for name in ("one", "two")), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("keep", ["best", "above"])
def test_a_round_without_tokens_says_so(keep, model, prompts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LanguageModel, "sample", lambda self, chunk, *_, **__: [rollout((), group=p.id) for p in chunk])
    assert go(model, prompts, tmp_path / "out", "--data.eval_fraction", "0", "--keep", keep) == 2
    error = capsys.readouterr().err
    assert "Round 1 accepted none of its completions: none has both tokens and a score." in error
    assert "nan" not in error and "threshold" not in error and error.count("\n") == 1


def test_a_round_without_scores_shows_its_progress(model, prompts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Checked, "score", lambda self, rollouts: [Score.failed("why") for _ in rollouts])
    assert go(model, prompts, tmp_path / "out", "--data.eval_fraction", "0", "--max_error_fraction", "1.0") == 2
    shown = capsys.readouterr()
    assert "round 1: samples 2/2\n" in shown.out  # and no figure
    assert "none has both tokens and a score" in shown.err
    run = read(tmp_path / "out")
    assert run.state == "failed" and train(run, "errors") == [1.0]


def test_a_subset_of_the_prompts_a_round(model, prompts, tmp_path):
    flags = ("--prompts_per_round", "3", "--data.eval_fraction", "0", "--keep", "best", "--max_per_prompt", "1")
    assert go(model, prompts, tmp_path / "out", *flags) == 0
    names = [
        {json.loads(line)["id"] for line in (tmp_path / "out" / "kept" / f"round_{k}.jsonl").read_text().splitlines()}
        for k in (1, 2)
    ]
    assert [len(found) for found in names] == [3, 3] and not names[0] & names[1]


def test_no_rewards_are_refused(model, prompts, capsys):
    assert main(["rejection", "--policy.name", model, "--data.train", prompts]) == 2
    assert "rewards is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rounds": 0}, "rounds"),
        ({"samples": 0}, "samples"),
        ({"thresholds": ()}, "thresholds"),
        ({"keep": "best", "samples": 1}, "best of 1"),
        ({"max_per_prompt": -1}, "max_per_prompt"),
    ],
)
def test_values_that_cannot_work_are_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        RejectionConfig(**wrong)
