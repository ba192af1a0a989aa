"""Questions and answers of reasoning-gym, on a package that keeps its protocol and pays as it does."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from prefrl import rewards
from prefrl.data.tasks import task_rows
from prefrl.errors import ConfigError, DataError
from prefrl.rewards.verifiers.verdict import Status
from prefrl.types import Prompt

PACKAGE = """
import types

class Sums:
    def __init__(self, size=500, seed=None):
        self.size, self.seed = size, seed

    def __iter__(self):
        for i in range(self.size):
            yield {"question": f"{i} + {self.seed}?", "answer": str(i), "metadata": {"operands": (i, self.seed)}}

    def score_answer(self, answer, entry):
        if answer == "hang":
            while True:
                pass
        assert isinstance(entry["metadata"]["operands"], tuple), "what the dataset made comes back as it was"
        if entry["answer"] is not None:
            int(answer.split()[0])
        if answer == entry["answer"]:
            return 1.0
        return len(entry["answer"]) / len(answer) if entry["answer"] in answer else 0.01

factory = types.SimpleNamespace(DATASETS={"sums": Sums})

def create_dataset(name, **settings):
    return factory.DATASETS[name](**settings)

def get_score_answer_fn(name):
    return create_dataset(name).score_answer
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package where this process and its workers find it."""
    (tmp_path / "reasoning_gym.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    yield
    sys.modules.pop("reasoning_gym", None)


@pytest.fixture
def asked(rollout):
    """A rollout that answers the question 17 + 0."""

    def asked(text, **columns):
        row = {"question": "17 + 0?", "answer": "17", "metadata": {"operands": (17, 0)}, "reasoning_gym": "sums"}
        return replace(rollout(text), prompt=Prompt(id="p0", text=row["question"], columns=row | columns))

    return asked


def test_rows(package):
    train, held_out = task_rows("task:reasoning_gym:sums:40"), task_rows("task:reasoning_gym:sums:40:held_out")
    assert len(train) + len(held_out) == 40
    assert not {row["question"] for row in train} & {row["question"] for row in held_out}
    assert (len(train), len(held_out)) == (33, 7)
    row = next(row for row in train if row["answer"] == "17")
    (message,) = row.pop("prompt")
    assert message["content"].startswith("17 + 0?\n\nWrite the final answer")
    assert row == {
        **{"id": "sums-17", "reasoning_gym": "sums", "question": "17 + 0?", "answer": "17"},
        "metadata": {"operands": (17, 0)},
    }
    assert len(task_rows("task:reasoning_gym:sums")) + len(task_rows("task:reasoning_gym:sums:held_out")) == 500


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("task:reasoning_gym:sum", "no dataset 'sum' among its 1. Did you mean 'sums'"),
        ("task:reasoning_gym", r"expected task:reasoning_gym:DATASET\[:SIZE\]"),
        ("task:reasoning_gym:sums:0", r"expected task:reasoning_gym:DATASET\[:SIZE\]"),
        ("task:reasoning_gym:sums:many:held_out", r"expected task:reasoning_gym:DATASET\[:SIZE\]"),
    ],
)
def test_rows_that_cannot_be_made(package, name, says):
    with pytest.raises(DataError, match=says):
        task_rows(name)


def test_a_missing_package_says_what_to_type(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install reasoning-gym"):
        task_rows("task:reasoning_gym:sums")
    with pytest.raises(ConfigError, match="pip install reasoning-gym"):
        rewards.build("reasoning_gym")


def test_full_marks_count_and_a_share_of_them_does_not(package, asked):
    batch = [asked(f"so <answer>{text}</answer>") for text in ("17", " 17\n", "17 or 18", "9", "")] + [asked("17")]
    strict = rewards.build({"kind": "reasoning_gym", "timeout": 0.5, "workers": 1}).verdicts(batch)
    own = rewards.build({"kind": "reasoning_gym", "partial": True, "timeout": 0.5, "workers": 1}).verdicts(batch)
    assert [v.score for v in strict] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [v.score for v in own] == [1.0, 1.0, 0.25, 0.01, 0.0, 0.0]
    assert [v.parts["own"] for v in strict] == [v.parts["own"] for v in own]
    assert [v.parts["correct"] for v in own] == [v.score for v in strict]
    assert [str(v.status) for v in own] == ["ok"] * 4 + ["invalid"] * 2


def test_the_whole_text_where_no_tag_is_asked_for(package, asked):
    source = rewards.build({"kind": "reasoning_gym", "tag": "", "timeout": 0.5, "workers": 1})
    assert [v.score for v in source.verdicts([asked(" 17 "), asked(" ")])] == [1.0, 0.0]


def test_what_cannot_be_judged_has_no_score(package, asked):
    source = rewards.build({"kind": "reasoning_gym", "timeout": 0.5, "workers": 1})
    texts = ("<answer>hang</answer>", "<answer>many</answer>", "<answer>17</answer>")
    hung, unreadable, right = source.verdicts([asked(text) for text in texts])
    assert (hung.status, hung.score) == (Status.TIMEOUT, None)
    assert (unreadable.status, unreadable.score) == (Status.INVALID, 0.0)  # raises, and takes the gold answer
    assert unreadable.evidence.startswith("ValueError: invalid literal for int()")
    assert right.score == 1.0
    (broken,) = source.verdicts([asked("<answer>17</answer>", metadata={})])
    assert (broken.status, broken.evidence) == (Status.ERROR, "KeyError: 'operands'")


def test_the_gold_answer(package):
    source = rewards.build("reasoning_gym")
    assert source.gold({"answer": "17"}) == "<answer>17</answer>"
    assert source.gold({"answer": None}) is None
