"""Labelled steps: every layout, what is ignored stays ignored, and nothing is lost without a count."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from datasets import Dataset, Features, List, Value

from prefrl.data.steps import Stepped, load_stepped, write_stepped
from prefrl.errors import ConfigError, DataError
from prefrl.types import Prompt

TRL = {"prompt": "Q", "completions": ["a", "b", "c"], "labels": [True, False, True]}


def one(row, **how):
    """The only solution of a row."""
    (found,) = load_stepped([row], **how)[0]
    return found


def solution(*labels, counts=(), steps=None, **more):
    steps = steps or tuple(f"s{n}\n" for n in range(len(labels)))
    return Stepped(prompt=Prompt(id="p", text="Q"), steps=steps, labels=labels, counts=counts, **more)


def rated(*texts_and_ratings, chosen=0, human=None):
    completions = [{"text": text, "rating": rating, "flagged": None} for text, rating in texts_and_ratings]
    return {"completions": completions, "human_completion": human, "chosen_completion": chosen}


def prm800k(*steps, reason="found_error"):
    return {"question": {"problem": "Q"}, "label": {"steps": list(steps), "finish_reason": reason}}


LAYOUTS = {
    "trl": TRL,
    "prm800k": prm800k(rated(("a", 1)), rated(("b", -1), chosen=None)),
    "math_shepherd": {"input": "Q Step 1: a ки\nStep 2: b ки", "label": "Q Step 1: a +\nStep 2: b -"},
    "rlhflow": {
        "conversations": [
            {"role": "user", "content": "Q Step 1: a"},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "Step 2: b"},
            {"role": "assistant", "content": "-"},
        ]
    },
    "qwen": {"query": "Q", "response": "a<extra_0>b<extra_0>", "labels": [1, 0]},
    "mr_ben": {"question": "Q", "options": "A: 1", "steps": ["a", "b", "c"], "labels": [1, 0], "correct": False},
    "mr_gsm8k": {"question": "Q", "steps": ["a", "b", "c"], "labels": [1, 0], "first_error_step": 2},
    "prmbench": {"question": "Q", "steps": ["a", "b", "c"], "labels": [1, 0, 1], "type": "circular"},
    "process_bench": {"problem": "Q", "steps": ["a", "b", "c"], "label": 1, "final_answer_correct": False},
}
READ = {
    "trl": ("Q", ("a\n", "b\n", "c"), (1.0, 0.0, None)),
    "prm800k": ("Q", ("a\n", "b"), (1.0, 0.0)),
    "math_shepherd": ("Q", ("Step 1: a\n", "Step 2: b"), (1.0, 0.0)),
    "rlhflow": ("Q", ("Step 1: a\n", "Step 2: b"), (1.0, 0.0)),
    "qwen": ("Q", ("a\n\n", "b"), (1.0, 0.0)),
    "mr_ben": ("Q\nA: 1", ("a\n", "b\n", "c"), (1.0, 0.0, None)),
    "mr_gsm8k": ("Q", ("a\n", "b\n", "c"), (1.0, 0.0, None)),
    "prmbench": ("Q", ("a\n", "b\n", "c"), (1.0, 0.0, None)),
    "process_bench": ("Q", ("a\n", "b\n", "c"), (1.0, 0.0, None)),
}


@pytest.mark.parametrize("style", LAYOUTS)
def test_every_layout(style):
    found = one(LAYOUTS[style])  # told by its columns
    assert (found.prompt.text, found.steps, found.labels) == READ[style]
    assert found.first_error == 1
    assert one(LAYOUTS[style], style=style) == found


def test_other_columns_stay_with_the_prompt():
    assert one({**TRL, "answer": "7"}).prompt.columns == {"answer": "7"}
    assert one(LAYOUTS["mr_ben"]).prompt.columns == {"correct": False}
    assert one(LAYOUTS["process_bench"]).outcome == 0.0


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (-100, None),
        (-100.0, None),
        (None, None),
        (True, 1.0),
        (False, 0.0),
        (1, 1.0),
        (0.75, 0.75),  # int() would make it 0
        ("+", 1.0),
        ("-", 0.0),
    ],
)
def test_labels(given, label):
    found = one({**TRL, "labels": [True, True, given]})
    assert found.labels == (1.0, 1.0, label)


@pytest.mark.parametrize("wrong", [-1, 2, 1.5, float("nan"), "maybe", [1]])
def test_what_is_no_label_is_refused(wrong):
    with pytest.raises(DataError, match="label"):
        load_stepped([{**TRL, "labels": [True, True, wrong]}])


def test_ignored_labels_survive_a_cast_to_booleans(tmp_path):
    write_stepped(tmp_path / "s.jsonl", [solution(1.0, None, 0.0)])
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    features = Features(
        {
            "id": Value("string"),
            "prompt": Value("string"),
            "completions": List(Value("string")),
            "labels": List(Value("bool")),
            "separator": Value("string"),
        }
    )
    cast = Dataset.from_list(rows).cast(features).map(lambda row: {"labels": row["labels"]})
    assert cast[0]["labels"] == [True, None, False]
    assert load_stepped(cast)[0][0].labels == (1.0, None, 0.0)


def test_minus_100_beside_booleans_would_be_cast_to_true(tmp_path):
    """Why labels are whole numbers wherever -100 is among them."""
    write_stepped(tmp_path / "s.jsonl", [solution(1.0, None, 0.0)], ignored="-100")
    row = json.loads((tmp_path / "s.jsonl").read_text())
    assert row["labels"] == [1, -100, 0] and not any(isinstance(label, bool) for label in row["labels"])
    assert [int(label) for label in Dataset.from_list([row])[0]["labels"]] == [1, -100, 0]  # as a trainer reads them
    assert load_stepped(tmp_path / "s.jsonl")[0][0].labels == (1.0, None, 0.0)


def test_shares_are_not_written_for_a_trainer_that_cuts_them(tmp_path):
    with pytest.raises(DataError, match="cuts down to 0"):
        write_stepped(tmp_path / "s.jsonl", [solution(1.0, 0.75)], ignored="-100")
    assert not (tmp_path / "s.jsonl").exists()


@pytest.mark.parametrize(
    "steps",
    [
        ("a\n", "b\n", "c"),
        ("a\n\n", "b\n\n", "c\n\n"),
        ("a\n\n", "b\n", "c"),
        ("a", "b ", "c"),
        ("a\n\n\n", "```\nx\n\ny\n```\n\n", "c\n"),
    ],
)
def test_written_solutions_are_read_as_they_were(tmp_path, steps):
    given = [
        solution(0.75, None, 0.25, steps=steps, counts=((6, 8), None, (1, 4)), outcome=0.0),
        solution(1.0, steps=("x\n",), outcome=1.0),
    ]
    write_stepped(tmp_path / "s.jsonl", given)
    found, changed = load_stepped(tmp_path / "s.jsonl")
    assert [(f.steps, f.labels, f.outcome) for f in found] == [(g.steps, g.labels, g.outcome) for g in given]
    assert found[0].counts == given[0].counts and found[1].counts == (None,) and changed == {}


def test_counts_without_labels_are_shares():
    row = {"prompt": "Q", "completions": ["a", "b", "c"], "counts": [[8, 8], [3, 4], None]}
    found = one(row)
    assert (found.labels, found.counts) == ((1.0, 0.75, None), ((8, 8), (3, 4), None))


@pytest.mark.parametrize("wrong", [[5, 4], [-1, 4], [0, 0], [1.5, 4], [1], "1/4"])
def test_counts_must_be_counts(wrong):
    with pytest.raises(DataError, match="count"):
        load_stepped([{**TRL, "counts": [wrong, None, None]}])


@pytest.mark.parametrize(("neutral", "label"), [("positive", 1.0), ("negative", 0.0), ("ignore", None)])
def test_neutral_steps(neutral, label):
    row = prm800k(rated(("a", 1)), rated(("b", 0)), rated(("c", 1)), reason="solution")
    found, changed = load_stepped([row], neutral=neutral, after_error="keep")
    assert found[0].labels == (1.0, label, 1.0) and found[0].outcome == 1.0
    word = "ignored" if neutral == "ignore" else neutral
    assert changed == {f"neutral steps read as {word}": 1}


def test_a_neutral_step_read_as_negative_is_an_error():
    row = prm800k(rated(("a", 0)), rated(("b", 1)))
    assert one(row, neutral="negative").labels == (0.0, None)
    assert one(row, neutral="positive").labels == (1.0, 1.0)


@pytest.mark.parametrize(
    ("policy", "labels", "changed"),
    [
        ("ignore", (1.0, 0.0, None, None), {"labels after the first error ignored": 2}),
        ("negative", (1.0, 0.0, 0.0, 0.0), {"labels after the first error set to 0": 1}),
        ("keep", (1.0, 0.0, 1.0, 0.0), {}),
    ],
)
def test_after_the_first_error(policy, labels, changed):
    row = {"prompt": "Q", "completions": ["a", "b", "c", "d"], "labels": [1, 0, 1, 0]}
    found, said = load_stepped([row], after_error=policy)
    assert (found[0].labels, said) == (labels, changed)


def test_a_share_below_one_half_is_no_known_error():
    row = {"prompt": "Q", "completions": ["a", "b", "c"], "labels": [0.9, 0.2, 0.6]}
    found, changed = load_stepped([row])
    assert found[0].labels == (0.9, 0.2, 0.6) and changed == {} and found[0].first_error == 1
    row = {"prompt": "Q", "completions": ["a", "b", "c", "d"], "labels": [0.2, 0.6, 0.0, 0.6]}
    assert one(row).labels == (0.2, 0.6, 0.0, None)


def test_other_completions_of_a_step_are_solutions_that_end_there():
    human = {"text": "h", "rating": None}
    row = prm800k(rated(("a", 1), ("x", -1)), rated(("b", -1), chosen=None, human=human), rated(("c", 1)))
    found, changed = load_stepped([row])
    assert [(f.steps, f.labels) for f in found] == [
        (("a\n", "h\n", "c"), (1.0, None, 1.0)),
        (("x",), (0.0,)),
        (("a\n", "b"), (None, 0.0)),  # the steps before are labelled once, in the first row
    ]
    assert changed == {"other completions of a step, read as solutions of their own that end there": 2}


def test_the_mark_of_math_shepherd_inside_a_word_is_no_mark():
    row = {"input": "Q Step 1: ошибки ки\nStep 2: b ки", "label": "Q Step 1: ошибки -\nStep 2: b +"}
    assert one(row, after_error="keep").steps == ("Step 1: ошибки\n", "Step 2: b")
    assert one(row, after_error="keep").labels == (0.0, 1.0)


def test_a_question_that_says_step_1_is_kept_whole():
    row = {"input": "After Step 1: what? Step 1: a ки", "label": "After Step 1: what? Step 1: a +"}
    assert (one(row).prompt.text, one(row).steps) == ("After Step 1: what?", ("Step 1: a",))


def test_the_last_mark_of_qwen_may_be_missing():
    row = {"query": "Q", "response": "a<extra_0>b", "labels": [1, 0]}
    assert (one(row).steps, one(row).labels) == (("a\n\n", "b"), (1.0, 0.0))
    with pytest.raises(DataError, match="labels and steps differ in number"):
        load_stepped([{"query": "Q", "response": "a<extra_0>b<extra_0>", "labels": [1, 0, 1]}])


def test_messages_of_qwen():
    messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "a<extra_0>b<extra_0>"}]
    found = one({"messages": messages, "labels": [1, 1]})
    assert found.prompt.messages == ({"role": "user", "content": "Q"},) and found.text == "a\n\nb"


def test_blank_steps_are_joined_and_counted():
    row = {"question": "Q", "steps": ["a", "", "b", " "], "labels": [1, 1, 1, 1]}
    found, changed = load_stepped([row])
    assert (found[0].steps, found[0].labels) == (("a\n\n", "b\n "), (1.0, 1.0))
    assert changed == {"blank steps joined to the step before": 2}


def test_rows_that_cannot_be_used_are_counted():
    blank = {"question": "Q", "steps": ["a", ""], "labels": [1, 0]}
    short = {"question": "Q", "steps": ["a", "b"], "labels": [1]}
    good = {"question": "Q", "steps": ["a", "b"], "labels": [0]}
    found, changed = load_stepped([blank, short, good], max_bad_fraction=0.7)
    assert [f.labels for f in found] == [(0.0, None)]
    assert changed == {
        "rows dropped: a blank step is labelled wrong": 1,
        "rows dropped: labels and steps differ in number, and the labels do not end at an error": 1,
    }
    with pytest.raises(DataError, match="2 of 3 rows cannot be used"):
        load_stepped([blank, short, good])


def test_lengths_that_differ_are_refused():
    with pytest.raises(DataError, match="labels and steps differ in number"):
        load_stepped([{**TRL, "labels": [True]}])
    with pytest.raises(DataError, match="first_error_step is not the step"):
        load_stepped([{**LAYOUTS["mr_gsm8k"], "first_error_step": 1}])
    with pytest.raises(DataError, match="2 labels"):
        solution(1.0, 0.0, steps=("a",))


def test_missing_columns_name_the_layouts(tmp_path):
    with pytest.raises(DataError, match=r"has the columns question, answer\. Labelled steps have trl: .*process_bench"):
        load_stepped([{"question": "Q", "answer": "A"}])
    with pytest.raises(DataError, match="Labelled steps have trl"):
        load_stepped([LAYOUTS["prmbench"]], style="trl")
    with pytest.raises(ConfigError, match="Did you mean 'prm800k'"):
        load_stepped([TRL], style="prm800")
    with pytest.raises(ConfigError, match="after_error is 'drop'"):
        load_stepped([TRL], after_error="drop")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=r"is empty \(0 bytes\)"):
        load_stepped(tmp_path / "empty.jsonl")


REAL = [  # rows that are kept, rows dropped, solutions with an error
    ("mr_ben.jsonl", 3355, 66, 1957),
    ("mr_gsm8k_steps.jsonl", 466, 0, 466),
    ("prmbench_steps.jsonl", 4000, 0, 2481),
]


def test_real_files(tmp_path):
    """Counts of public data sets where PREFRL_DATA has them."""
    folder = Path(os.environ.get("PREFRL_DATA", tmp_path)) / "steps"
    figures = [_figures(folder / row[0]) if (folder / row[0]).exists() else row for row in REAL]
    assert figures == REAL


def _figures(path):
    found, changed = load_stepped(path)
    dropped = sum(count for reason, count in changed.items() if reason.startswith("rows dropped"))
    return path.name, len(found), dropped, sum(one.first_error >= 0 for one in found)
