from __future__ import annotations

import time

import pytest

from prefrl.rewards import json_object
from prefrl.rewards.verifiers.json_reward import find_object


@pytest.mark.parametrize(
    ("text", "strict", "found"),
    [
        ('{"a": 1}', True, {"a": 1}),
        (' \n{"a": 1}\n', True, {"a": 1}),
        ('```json\n{"a": 1}\n```', True, {"a": 1}),
        ('```\n{"a": 1}```', True, {"a": 1}),
        ("{}", True, {}),
        ('Here: {"a": 1}', True, None),
        ('```json\n{"a": 1}\n```\nDone.', True, None),
        ('{"a": 1} {"b": 2}', True, None),
        ("[1, 2]", True, None),
        ('"a"', True, None),
        ("null", True, None),
        ("{'a': 1}", True, None),
        ('{"a": 1,}', True, None),
        ('{"a": NaN}', True, None),
        ('{"a": -Infinity}', True, None),
        ('{"a": 1', True, None),
        ("", True, None),
        ('Here: {"a": 1} ok', False, {"a": 1}),
        ('Set {x} to {"a": {"b": "}"}}.', False, {"a": {"b": "}"}}),
        ('{"a": 1} then {"b": 2}', False, {"b": 2}),
        ('```json\n{"a": 1}\n```\nnot {"b": 2}', False, {"a": 1}),
        ('First\n```json\n{"a": 1}\n```\nthen\n```json\n{"a": 2}\n```', False, {"a": 2}),
        ('```python\nx = {}\n``` and {"a": NaN}', False, {}),
        ("{x} [1]", False, None),
        ("{" * 2000, False, None),
        ('{"a":' * 5000, False, None),
        ("", False, None),
    ],
)
def test_find_object(text, strict, found):
    assert find_object(text, strict=strict) == found


@pytest.mark.parametrize(
    ("text", "required", "value", "parts"),
    [
        ('{"a": 1}', (), 1.0, {"parsed": 1, "required": 1, "correct": 1}),
        ('{"a": 1, "b": null}', ("a", "b"), 1.0, {"parsed": 1, "required": 1, "correct": 1}),
        ('{"a": 1}', ("a", "b"), 0.0, {"parsed": 1, "required": 0.5, "correct": 0}),
        ('{"ab": 1}', "ab", 1.0, {"parsed": 1, "required": 1, "correct": 1}),
        ("no", ("a",), 0.0, {"parsed": 0, "required": 0, "correct": 0}),
        ("", (), 0.0, {"parsed": 0, "required": 0, "correct": 0}),
    ],
)
def test_required_keys(rollout, text, required, value, parts):
    (got,) = json_object(required).score([rollout(text)])
    assert (got.value, got.parts) == (value, parts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "b": "x", "c": [1, 2], "d": true}', 1.0),
        ('{"d": true, "c": [1, 2], "b": "x", "a": 1.0, "extra": 0}', 1.0),
        ('{"a": 2, "b": "x", "c": [1, 2], "d": true}', 0.75),
        ('{"a": true, "b": "X", "c": [2, 1], "d": 1}', 0.0),
        ('{"a": "1", "b": "x", "c": [1, 2, 3], "d": true}', 0.5),
        ('{"b": "x"}', 0.25),
        ("{}", 0.0),
        ("", 0.0),
        ("a = 1", 0.0),
    ],
)
def test_partial_credit_per_field(rollout, text, value):
    gold = {"a": 1, "b": "x", "c": [1, 2], "d": True}
    (got,) = json_object(column="answer").score([rollout(text, answer=gold)])
    assert (got.value, got.parts["fields"]) == (value, value)
    assert got.parts["correct"] == float(value == 1.0)
    assert got.parts["parsed"] == float(text.startswith("{"))


def test_nested_values_match_by_json_type(rollout):
    source = json_object(column="answer")
    cases = [
        ('{"a": {"b": [1, {"c": null}]}}', 1.0),
        ('{"a": {"b": [true, {"c": null}]}}', 0.0),
        ('{"a": {}}', 0.0),
    ]
    for text, value in cases:
        (got,) = source.score([rollout(text, answer='{"a": {"b": [1.0, {"c": null}]}}')])
        assert got.value == value


def test_a_missing_required_key_takes_all_credit(rollout):
    (got,) = json_object(["a", "b"], "answer").score([rollout('{"a": 1}', answer={"a": 1})])
    assert (got.value, got.parts) == (0.0, {"parsed": 1, "required": 0.5, "fields": 1.0, "correct": 0.0})


@pytest.mark.parametrize("gold", [None, "{", "[1]", {}, "{}", 3])
def test_a_gold_that_is_no_object_is_an_error(rollout, gold):
    (got,) = json_object(column="answer").score([rollout("{}", answer=gold)])
    assert got.error == f"the column 'answer' is {gold!r}; expected an object with at least one field"


def test_text_around_counts_only_when_not_strict(rollout):
    text = rollout('Sure: {"a": 1}')
    assert [json_object(strict=s).score([text])[0].value for s in (True, False)] == [0.0, 1.0]


def test_name():
    assert json_object().name == "json"


@pytest.mark.parametrize("filling", [" " * 2_000_000, "\n" * 2_000_000, "```json \n" * 200_000, "``` " * 400_000])
def test_no_filling_of_a_block_takes_long(filling):
    start = time.thread_time()
    assert find_object(f"Here:\n```json\n{filling}x\n```", strict=False) is None
    assert find_object(f'```json\n{filling}\n{{"a": 1}}\n```', strict=False) == {"a": 1}
    assert time.thread_time() - start < 5.0  # a tenth of a second on an idle machine; quadratic would be minutes
