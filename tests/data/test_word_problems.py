from __future__ import annotations

import json
import re

import pytest

from prefrl.data.tasks import task_rows
from prefrl.data.word_problems import HELD_OUT_STORIES, STORIES, TOWNS
from prefrl.rewards import build
from prefrl.types import Prompt, Rollout, StopReason

OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}


def said(row, text):
    columns = {key: value for key, value in row.items() if key not in ("id", "prompt", "completion")}
    prompt = Prompt(id=row["id"], messages=tuple(row["prompt"]), columns=columns)
    return Rollout(
        prompt=prompt, completion_ids=(1,), mask=(True,), logps=(0.0,), text=text, stop=StopReason.EOS, group=row["id"]
    )


def both(task):
    return [task_rows(f"task:{task}:{split}") for split in ("train", "held_out")]


def test_equations_are_true_and_use_the_numbers_of_the_question():
    rows = [row for split in both("word_problems") for row in split]
    assert len(rows) == 30 * len(STORIES) == len({row["id"] for row in rows})
    for row in rows:
        a, sign, b, answer = re.fullmatch(r"(\d+) ([-+*/]) (\d+) = (\d+)", row["completion"]).groups()
        assert str(OPERATIONS[sign](int(a), int(b))) == answer == row["answer"]
        assert sorted(re.findall(r"\d+", row["prompt"][0]["content"])) == sorted([a, b])


def test_whole_kinds_of_stories_and_whole_towns_are_held_out():
    train, held_out = both("word_problems")
    assert (len(train), len(held_out)) == (480, 120)
    assert {row["story"] for row in held_out} == set(HELD_OUT_STORIES)
    assert {row["completion"].split()[1] for row in held_out} == {"+", "-", "*", "/"}
    train, held_out = both("records")
    assert (len(train), len(held_out)) == (168, 72)
    assert {json.loads(row["answer"])["town"] for row in held_out} == set(TOWNS[-3:])
    assert not [row for row in train if any(town in row["prompt"][0]["content"] for town in TOWNS[-3:])]


def test_they_are_always_the_same():
    first, second = task_rows("task:word_problems")[0], task_rows("task:records")[0]
    assert first["completion"] == task_rows("task:word_problems")[0]["completion"]
    assert second == task_rows("task:records")[0]


@pytest.mark.parametrize("kind", [{"kind": "json", "column": "answer"}, {"kind": "json_schema", "column": "schema"}])
def test_records_are_judged_field_by_field(kind):
    row = task_rows("task:records")[0]
    truth = json.loads(row["answer"])
    texts = [row["answer"], json.dumps({**truth, "age": truth["age"] + 1}), "{}", "no JSON"]
    source = build([kind])
    assert [score.value for score in source.score([said(row, text) for text in texts])] == [1.0, 0.75, 0.0, 0.0]


def test_both_judges_of_word_problems_accept_the_equation():
    row = task_rows("task:word_problems")[0]
    for kind in ("numeric", "math"):
        assert [s.value for s in build([{"kind": kind, "column": "answer"}]).score([said(row, row["completion"])])] == [
            1.0
        ]
