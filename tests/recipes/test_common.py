from __future__ import annotations

import pytest

from prefrl.config import DataConfig
from prefrl.data.formats import to_prompts
from prefrl.errors import ConfigError, DataError
from prefrl.recipes.common import train_and_held_out


def test_columns_are_renamed_where_they_are_there(write):
    train = write("train.jsonl", [{"question": f"{n}?", "answer": n} for n in range(4)])
    held_out = write("held_out.jsonl", [{"problem": "5?", "answer": 5}])
    columns = {"question": "prompt", "problem": "prompt"}
    found = train_and_held_out(DataConfig(train=train, eval=held_out, columns=columns), to_prompts, 0, "prompts")
    assert [[prompt.question for prompt in part] for part in found] == [["0?", "1?", "2?", "3?"], ["5?"]]
    assert found[1][0].columns["answer"] == 5
    done = write("done.jsonl", [{"prompt": "6?"}])
    given = DataConfig(train=train, eval=done, columns=columns)
    assert train_and_held_out(given, to_prompts, 0, "prompts")[1][0].question == "6?"


def test_columns_that_are_not_there_are_named(write):
    train = write("train.jsonl", [{"question": "1?", "answer": 1}])
    with pytest.raises(ConfigError, match=r"data\.columns renames quest, but .* has question, answer"):
        train_and_held_out(DataConfig(train=train, columns={"quest": "prompt"}), to_prompts, 0, "prompts")
    with pytest.raises(DataError, match="a column 'answer' already"):
        train_and_held_out(DataConfig(train=train, columns={"question": "answer"}), to_prompts, 0, "prompts")
