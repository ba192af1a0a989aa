from __future__ import annotations

import math
from typing import Any

import pytest

from prefrl.data.formats import content_hash, to_completions, to_pairs, to_prompts, to_unpaired
from prefrl.data.tables import load_table
from prefrl.errors import DataError
from prefrl.types import Completion, Pair, Prompt

USER = {"role": "user", "content": "What color is the sky?"}
BLUE = {"role": "assistant", "content": "It is blue."}
GREEN = {"role": "assistant", "content": "It is green."}


def pairs(*rows: dict[str, Any], bad: float = 0.05) -> list[Pair]:
    return to_pairs(load_table(list(rows)), max_bad_fraction=bad).items


def reason(read: Any, *rows: dict[str, Any]) -> str:
    """The one reason for which the last of the rows was dropped."""
    dropped = read(load_table(list(rows)), max_bad_fraction=1.0).dropped
    assert list(dropped.values()) == [1]
    return str(next(iter(dropped)))


def test_prompts_keep_every_other_column() -> None:
    table = load_table([{"prompt": "2+2", "answer": "4"}, {"prompt": [USER], "level": 3}])
    first, second = to_prompts(table).items
    assert first == Prompt(id=content_hash("2+2"), text="2+2", columns={"answer": "4", "level": None})
    assert second.messages == (USER,)
    assert second.columns == {"answer": None, "level": 3}


def test_prompt_ids() -> None:
    table = load_table([{"prompt": "a", "id": 7}, {"prompt": "a", "id": None}, {"prompt": "a", "id": "x"}])
    prompts = to_prompts(table).items
    assert [p.id for p in prompts] == ["7", content_hash("a"), "x"]
    assert prompts[0].columns == {"id": 7}


def test_content_hash_is_stable_and_sees_content_only() -> None:
    assert content_hash("2+2") == "31fac86d7bf7"  # sha256 of the JSON text "2+2", quotes included
    assert content_hash([USER]) == content_hash(({"content": USER["content"], "role": "user"},))
    assert content_hash("a") != content_hash("a ")
    assert content_hash("user") != content_hash([{"role": "user", "content": ""}])


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("  ", "empty prompt"),
        (None, "empty prompt"),
        ([], "empty prompt"),
        (5, "prompt is neither text nor messages"),
        (["hi"], "prompt has a message without role and content"),
        ([{"from": "human", "value": "hi"}], "prompt has a message without role and content"),
        ([{"role": "user", "content": None}], "prompt has a message whose content is not text"),
        (
            [{"role": "user", "content": [{"type": "image"}]}],
            "prompt has a message whose content is not text",
        ),
        ([{"role": "system", "content": "Be kind."}], "prompt ends with a system message"),
    ],
)
def test_bad_prompts(prompt: Any, expected: str) -> None:
    assert reason(to_prompts, {"prompt": "good"}, {"prompt": prompt}) == expected


def test_empty_keys_that_tables_add_to_messages_are_left_out() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}], "name": None}
    row = {"prompt": [{**USER, "tool_calls": None}, call, {"role": "tool", "content": "4"}]}
    (prompt,) = to_prompts(load_table([row])).items
    assert prompt.messages == (
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
        {"role": "tool", "content": "4"},
    )


def test_pairs_in_all_explicit_shapes_are_the_same_pair() -> None:
    plain = {"prompt": [USER], "chosen": "It is blue.", "rejected": "It is green."}
    chat = {"prompt": [USER], "chosen": [BLUE], "rejected": [GREEN]}
    implied = {"chosen": [USER, BLUE], "rejected": [USER, GREEN]}
    repeated = {"prompt": USER["content"], "chosen": [USER, BLUE], "rejected": [USER, GREEN]}
    expected = Pair(
        prompt=Prompt(id=content_hash([USER]), messages=(USER,)),
        chosen=Completion(text="It is blue."),
        rejected=Completion(text="It is green."),
    )
    for row in (plain, chat, implied, repeated):
        assert pairs(row) == [expected]


def test_standard_pairs() -> None:
    (explicit,) = pairs({"prompt": "The sky is", "chosen": " blue.", "rejected": " green.", "source": "s"})
    (implied,) = pairs({"chosen": "The sky is blue.", "rejected": "The sky is green.", "source": "s"})
    assert implied == explicit
    assert (explicit.prompt.text, explicit.chosen.text) == ("The sky is", " blue.")
    assert explicit.prompt.columns == {"source": "s"}
    (whole,) = pairs({"chosen": "Paris ", "rejected": "London"})
    assert (whole.prompt.text, whole.chosen.text, whole.rejected.text) == ("", "Paris ", "London")


def test_pair_numbers() -> None:
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "label": True, "margin": "-0.5", "weight": 2}
    (pair,) = pairs(row)
    assert (pair.label, pair.margin, pair.weight) == (1.0, -0.5, 2.0)
    assert pair.prompt.columns == {}
    (pair,) = pairs({"prompt": "p", "chosen": "a", "rejected": "b"})
    assert (pair.label, pair.margin, pair.weight) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"chosen": ""}, "empty completion"),
        ({"rejected": None}, "empty completion"),
        ({"chosen": " \n"}, "empty completion"),
        ({"chosen": 5}, "completion is neither text nor messages"),
        ({"chosen": "b"}, "chosen equals rejected"),
        ({"prompt": [USER], "chosen": [BLUE], "rejected": BLUE["content"]}, "chosen equals rejected"),
        ({"chosen": [BLUE]}, "prompt is text but the completion is messages"),
        ({"prompt": [USER], "chosen": [USER]}, "completion is not from the assistant"),
        ({"prompt": [USER], "chosen": [USER, BLUE]}, "completion is more than one message"),
        ({"prompt": [USER], "chosen": [{**BLUE, "tool_calls": [{"name": "f"}]}]}, "completion calls a tool"),
        ({"margin": math.nan}, "margin is not a finite number"),
        ({"margin": None}, "margin is not a finite number"),
        ({"weight": math.inf}, "weight is not a finite number"),
        ({"weight": -1}, "weight is not at least 0"),
        ({"label": 1.5}, "label is not between 0 and 1"),
        ({"label": "good"}, "label is not a finite number"),
    ],
)
def test_bad_pairs(change: dict[str, Any], expected: str) -> None:
    good = {"prompt": "p", "chosen": "a", "rejected": "b", "margin": 0, "weight": 1, "label": 1}
    assert reason(to_pairs, good, {**good, **change}) == expected


def test_implied_conversations_that_end_differently_are_refused_with_their_row() -> None:
    with pytest.raises(DataError, match=r"does not end with an assistant message \(first: row 1\)"):
        pairs({"chosen": [USER, BLUE], "rejected": [USER, BLUE, USER]})


def test_a_pair_of_two_first_turns_has_no_prompt() -> None:
    with pytest.raises(DataError, match="empty prompt"):
        pairs({"chosen": [BLUE], "rejected": [GREEN]})


def test_bad_rows_above_the_threshold_are_an_error() -> None:
    rows = [{"prompt": str(i), "chosen": "a", "rejected": "b"} for i in range(94)]
    rows[40]["rejected"] = "a"
    rows[7]["chosen"] = ""
    read = to_pairs(load_table(rows))
    assert read.summary() == "kept 92 of 94: 1 empty completion, 1 chosen equals rejected"
    with pytest.raises(DataError, match=r"2 of 94 .* 1 empty completion \(first: row 8\), 1 chosen equals"):
        to_pairs(load_table(rows), max_bad_fraction=0.01)


def test_completions_of_prompts_messages_and_text() -> None:
    expected = (Prompt(id=content_hash([USER]), messages=(USER,)), Completion(text="It is blue."))
    for row in (
        {"prompt": [USER], "completion": [BLUE]},
        {"prompt": [USER], "completion": "It is blue."},
        {"messages": [USER, BLUE]},
    ):
        assert to_completions(load_table([row])).items == [expected]
    (prompt, completion), *_ = to_completions(load_table([{"prompt": "The sky is", "completion": " blue."}])).items
    assert (prompt.text, completion.text) == ("The sky is", " blue.")
    ((prompt, completion),) = to_completions(load_table([{"text": "The sky is blue.", "x": 1}])).items
    assert (prompt.text, completion.text, prompt.columns) == ("", "The sky is blue.", {"x": 1})


def test_only_the_last_of_several_turns_is_the_completion() -> None:
    ((prompt, completion),) = to_completions(load_table([{"messages": [USER, BLUE, USER, GREEN]}])).items
    assert prompt.messages == (USER, BLUE, USER)
    assert completion.text == "It is green."


@pytest.mark.parametrize(
    ("good", "row", "expected"),
    [
        ({"messages": [USER, BLUE]}, {"messages": [USER]}, "messages do not end with an assistant message"),
        ({"messages": [USER, BLUE]}, {"messages": [BLUE]}, "empty prompt"),
        ({"messages": [USER, BLUE]}, {"messages": None}, "empty conversation"),
        ({"text": "a"}, {"text": ""}, "empty completion"),
        ({"prompt": "a", "completion": "b"}, {"prompt": "", "completion": "b"}, "empty prompt"),
        ({"prompt": "a", "completion": "b"}, {"prompt": "a"}, "empty completion"),
    ],
)
def test_bad_completions(good: dict[str, Any], row: dict[str, Any], expected: str) -> None:
    assert reason(to_completions, good, row) == expected


def test_unpaired_labels() -> None:
    labels: list[Any] = [True, False, 1, 0, "true", "False", 1.0]
    table = load_table([{"prompt": "p", "completion": "c", "label": label} for label in labels])
    items = to_unpaired(table).items
    assert [label for *_, label in items] == [True, False, True, False, True, False, True]
    assert items[0][0].columns == {}
    for label in (None, math.nan, 2, "yes", 0.5):
        row = {"prompt": "p", "completion": "c", "label": label}
        assert reason(to_unpaired, {**row, "label": True}, row) == "label is not true or false"


def test_missing_columns_say_what_is_there_and_what_is_needed() -> None:
    with pytest.raises(DataError) as error:
        to_pairs(load_table([{"prompt": "p", "chosen": "a", "rejectd": "b"}]))
    assert str(error.value) == (
        "the list has the columns prompt, chosen, rejectd. A preference dataset has prompt, chosen, "
        "rejected; or chosen, rejected. 'rejected' is missing. Rename 'rejectd' to 'rejected'?"
    )


@pytest.mark.parametrize(
    ("read", "columns", "hints"),
    [
        (to_completions, ("prompt", "respones"), ["Rename 'respones' to 'completion'?"]),
        (
            to_completions,
            ("question", "answer"),
            ["Rename 'question' to 'prompt'?", "'answer' to 'completion'?"],
        ),
        (to_prompts, ("problem", "level"), ["Rename 'problem' to 'prompt'?"]),
        (to_unpaired, ("prompt", "completion"), ["'label' is missing."]),
        (to_pairs, ("a", "b"), ["'chosen' and 'rejected' are missing."]),
    ],
)
def test_missing_columns_are_guessed(read: Any, columns: tuple[str, ...], hints: list[str]) -> None:
    with pytest.raises(DataError) as error:
        read(load_table([dict.fromkeys(columns, "x")]))
    for hint in hints:
        assert hint in str(error.value)
