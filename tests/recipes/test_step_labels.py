"""Step labels from continuations, from data to the files of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.data.steps import load_stepped
from prefrl.evaluate.run_folder import read

TINY = str(Path(__file__).parents[2] / "configs" / "tiny" / "step_labels.yaml")
SOLUTIONS = [{"prompt": f"Say {n}", "completion": f"one {n}\ntwo\nthree"} for n in range(3)]


@pytest.fixture
def label(model, write, tmp_path):
    """Runs the tiny configuration on rows; its exit status."""
    count = iter(range(10))

    def label(rows, *more):
        name = str(next(count))
        given = ("--model.name", model, "--data.train", write(f"{name}.jsonl", rows), "--output", str(tmp_path / name))
        return main(["steplabels", TINY, *given, *more])

    return label


def written(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_every_step_has_its_counts(label, tmp_path):
    always = "[{kind: length_band, low: 0, high: 1000, unit: characters}]"
    assert label(SOLUTIONS, "--rewards", always) == 0
    rows = written(tmp_path / "0")
    assert [row["completions"] for row in rows] == [[f"one {n}", "two", "three"] for n in range(3)]
    assert all(row["counts"] == [[4, 4], [4, 4], [1, 1]] and row["labels"] == [True] * 3 for row in rows)
    assert {row["outcome"] for row in rows} == {1.0}
    run = read(tmp_path / "0")
    summary = run.status["summary"]
    assert (run.kind, run.state, summary["solutions"], summary["continuations"]) == ("steplabels", "finished", 3, 36)
    assert "12 steps" not in run.path.joinpath("report.html").read_text()
    assert "9 steps of 3 solutions" in run.path.joinpath("report.html").read_text()


def test_the_rows_are_read_as_they_were_written(label, tmp_path):
    assert label(SOLUTIONS) == 0
    found, changed = load_stepped(tmp_path / "0" / "steps.jsonl", after_error="keep")
    assert changed == {} and [one.text for one in found] == [
        "one 0\ntwo\nthree",
        "one 1\ntwo\nthree",
        "one 2\ntwo\nthree",
    ]
    for one in found:
        assert list(one.labels) == [k / n for k, n in one.counts] and one.counts[-1] == (1, 1)


def test_a_prompt_that_is_never_solved_says_nothing(label, capsys, tmp_path):
    never = "[{kind: length_band, low: 900, high: 1000, unit: characters}]"
    assert label(SOLUTIONS, "--rewards", never) == 2
    assert "3 solutions of prompts that were never solved" in capsys.readouterr().err
    assert label(SOLUTIONS, "--rewards", never, "--keep_unsolved", "true", "--labels", "hard") == 0
    assert all(row["labels"] == [False] * 3 and row["outcome"] == 0.0 for row in written(tmp_path / "1"))


def test_search_names_one_step_of_a_wrong_solution(label, tmp_path):
    # Wrong as it stands (14 characters are too many), right from the prompt alone and from the first step at times.
    short = "[{kind: length_band, low: 0, high: 12, unit: characters}]"
    assert label(SOLUTIONS, "--rewards", short, "--method", "search", "--continuations", "16") == 0
    for row in written(tmp_path / "0"):
        wrong = row["labels"].index(False)
        assert row["labels"] == [True] * wrong + [False] + [None] * (2 - wrong)
        assert row["outcome"] == 0.0 and row["counts"][-1] == [0, 1]
        tried = [at for at, count in enumerate(row["counts"][:-1]) if count]
        assert len(tried) <= 2  # ceil(log2 3)
        assert all((row["counts"][at][0] > 0) == (at < wrong) for at in tried)


def test_the_model_solves_prompts_that_have_no_solution(label, tmp_path):
    assert label([{"prompt": "Say 1"}, {"prompt": "Say 2"}], "--samples", "3", "--keep_unsolved", "true") == 0
    rows = written(tmp_path / "0")
    assert {row["prompt"] for row in rows} == {"Say 1", "Say 2"} and 1 <= len(rows) <= 6
    assert all(count is not None for row in rows for count in row["counts"])


def test_labels_of_the_data_are_compared_with(label, tmp_path):
    rows = [{"prompt": f"Say {n}", "completions": ["one", "two"], "labels": [True, True]} for n in range(4)]
    always = "[{kind: length_band, low: 0, high: 1000, unit: characters}]"
    assert label(rows, "--rewards", always) == 0
    known = json.loads((tmp_path / "0" / "evaluation.json").read_text())["against_known"]
    assert (known["correct_accuracy"], known["error_accuracy"], known["solutions"]) == (1.0, 0.0, 4)
    assert re.search("first-error F1", (tmp_path / "0" / "report.html").read_text())


def test_the_same_seed_gives_the_same_labels(label, tmp_path):
    assert label(SOLUTIONS) == label(SOLUTIONS) == label(SOLUTIONS, "--seed", "5") == 0
    first, second, third = (written(tmp_path / str(n)) for n in range(3))
    assert first == second and first != third


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--rewards", "[]"), "rewards is empty"),
        (("--separator", ""), "separator is empty"),
        (("--sampling.temperature", "0"), "all continuations are alike"),
        (("--max_tokens", "3"), "Raise the limit"),
    ],
)
def test_what_cannot_work_is_said(label, capsys, flags, says):
    assert label(SOLUTIONS, *flags) == 2
    assert says in capsys.readouterr().err
