"""Files to tasks: columns guessed, everything left out counted, nothing of a stranger's file believed."""

from __future__ import annotations

import json
import random
import threading

import pyarrow as pa
import pytest
from labelled import pair, text_pair
from pyarrow import parquet

from prefrl.data.comparisons import CheckItem, StepItem
from prefrl.data.exporting import Choices, Labelled, export
from prefrl.data.importing import (
    Layout,
    Rules,
    carry_out,
    guess,
    is_archive,
    keys_of,
    names_itself,
    near_duplicates,
    plan,
    read_upload,
)
from prefrl.data.preferences import PreferenceStore
from prefrl.data.tables import load_table
from prefrl.errors import ConfigError, DataError


def planned(rows, layout=None, known=(), **rules):
    return plan(load_table(rows), layout, rules=Rules(**rules), known=known)


def sides(found):
    return [(task.prompt.question, task.first.text, task.second.text) for task in found.tasks]


@pytest.mark.parametrize(
    ("columns", "shape", "roles"),
    [
        (["prompt", "chosen", "rejected"], "pair", {"prompt": "prompt", "first": "chosen", "second": "rejected"}),
        (["chosen", "rejected"], "pair", {"first": "chosen", "second": "rejected"}),
        (
            ["Instruction", "Response A", "response_b", "Winner"],
            "pair",
            {"prompt": "Instruction", "first": "Response A", "second": "response_b", "winner": "Winner"},
        ),
        (
            ["question", "answer_0", "answer_1"],
            "pair",
            {"prompt": "question", "first": "answer_0", "second": "answer_1"},
        ),
        (["input", "output_1", "output_2"], "pair", {"prompt": "input", "first": "output_1", "second": "output_2"}),
        (["prompt", "responses"], "completions", {"prompt": "prompt", "completions": "responses"}),
        (["prompt", "completions"], "completions", {"prompt": "prompt", "completions": "completions"}),
        (["prompt", "completions", "labels"], "steps", {"prompt": "prompt", "steps": "completions"}),
        (["problem", "steps", "answer"], "steps", {"prompt": "problem", "steps": "steps", "answer": "answer"}),
        (
            ["prompt", "completion", "answer", "model"],
            "check",
            {"prompt": "prompt", "completion": "completion", "answer": "answer", "policy": "model"},
        ),
    ],
)
def test_columns_are_guessed(columns, shape, roles):
    layout = guess(columns)
    assert (layout.shape, dict(layout.roles)) == (shape, roles)
    assert layout.chosen == ("chosen" in columns)


def test_columns_that_mean_nothing_are_an_error_and_wrong_ones_too():
    with pytest.raises(DataError, match="Nothing to label in the columns text, score"):
        guess(["text", "score"])
    rows = [{"prompt": "q", "a": "1", "b": "2"}]
    for roles, message in (
        ({"first": "a"}, "second of pair"),
        ({"first": "a", "second": "c"}, "no column 'c'"),
        ({"first": "a", "second": "a"}, "mean two things"),
        ({"first": "a", "second": "b", "frist": "b"}, "Did you mean 'first'"),
    ):
        with pytest.raises(DataError, match=message):
            planned(rows, Layout(shape="pair", roles=roles))


def test_columns_can_be_said():
    rows = [{"text": "q", "good": "1", "bad": "2", "who": "m"}]
    layout = Layout(shape="pair", roles={"prompt": "text", "first": "good", "second": "bad", "first_policy": "who"})
    found = planned(rows, layout)
    assert sides(found) == [("q", "1", "2")]
    assert found.tasks[0].checkpoints == ("m", "")
    assert found.unused == []


def test_pairs_of_conversations_imply_their_prompt():
    question = [{"role": "user", "content": "q"}]
    rows = [
        {
            side: [*question, {"role": "assistant", "content": text}]
            for side, text in (("chosen", "x"), ("rejected", "y"))
        }
    ]
    assert sides(planned(rows)) == [("q", "x", "y")]


def test_what_cannot_be_used_is_counted_with_its_first_row():
    rows = [
        {"prompt": "q", "a": "1", "b": "2"},
        {"prompt": "q", "a": "2", "b": "1"},
        {"prompt": "q", "a": "same", "b": "same"},
        {"prompt": "q", "a": "same\n", "b": " same"},
        {"prompt": "", "a": "1", "b": "2"},
        {"prompt": "q", "a": "1", "b": None},
        {"prompt": "q", "a": "1", "b": "z" * 50},
        {"prompt": "known", "a": "1", "b": "2"},
        {"prompt": "q", "a": "same", "b": "same"},
    ]
    known = {task.id for task in planned([rows[7]]).tasks}
    found = planned(rows, known=known, most_characters=40)
    assert sides(found) == [("q", "1", "2")]
    assert found.left_out == {
        "asked twice": 1,
        "answers that are the same": 2,
        "answers that differ in spaces only": 1,
        "empty prompt": 1,
        "empty completion": 1,
        "with a text of more than 40 characters": 1,
        "asked in the project already": 1,
    }
    assert found.first["answers that are the same"] == 3
    assert "1 items of 9 rows" in found.summary() and "2 answers that are the same (first: row 3)" in found.summary()


def test_completions_are_compared_pair_by_pair():
    rows = [{"prompt": "q", "completions": ["1", "2", "2", "3"], "models": ["m", "n", "o", "p"]}]
    found = planned(rows)
    assert sides(found) == [("q", "1", "2"), ("q", "1", "3"), ("q", "2", "3")]
    assert found.left_out == {"a completion that equals another one": 1}
    assert (
        planned([*rows, {"prompt": "r", "completions": ["x", "x"]}]).left_out["completions that are all the same"] == 1
    )


def test_steps_and_checks():
    (task,) = planned([{"problem": "1+1?", "steps": ["1+1", "=2"], "answer": 2, "model": "m"}]).tasks
    assert isinstance(task, StepItem)
    assert (task.steps, task.answer, task.checkpoint) == (("1+1", "=2"), "2", "m")
    (task,) = planned([{"prompt": "7*8?", "completion": "56", "answer": "56", "seed": 3}]).tasks
    assert isinstance(task, CheckItem)
    assert (task.completion.text, task.answer, dict(task.prompt.columns)) == ("56", "56", {"seed": 3})
    assert planned([{"problem": "q", "steps": ["x"]}, {"problem": "q", "steps": ["x", ""]}]).left_out == {
        "steps is not a list of texts": 1
    }


def test_rollouts_of_a_run_are_checks():
    row = {"step": 5, "policy": "step 5", "prompt_id": "p", "prompt": "7*8?", "reward": 1.0, "error": None, "tokens": 2}
    rows = [
        {**row, "completion": "56", "parts": {"math": 1.0, "length": None}, "stop": "eos"},
        {**row, "completion": "The product of", "parts": {}, "stop": "length"},
        {**row, "completion": "57", "parts": 0.5, "stop": "eos"},
        {**row, "completion": "58", "parts": {"math": "x"}, "stop": "eos"},
    ]
    found = planned(rows)
    whole, cut = found.tasks
    assert (whole.completion.text, whole.checkpoint, dict(whole.verdicts)) == ("56", "step 5", {"math": 1.0})
    assert whole.completion.finished and not cut.completion.finished and not cut.verdicts
    assert found.left_out == {
        "verdicts are not an object of names and numbers": 1,
        "a verdict is not a finite number": 1,
    }


def test_preferences_of_a_file_are_labels_on_demand_only():
    rows = [{"prompt": "q", "chosen": "x", "rejected": "y"}]
    assert not planned(rows).labels
    (label,) = planned(rows, labels=True).labels
    assert (label.outcome, label.annotator) == ("first", "imported")
    arena = [
        {"question": f"q{n}", "answer_a": "x", "answer_b": "y", "winner": winner}
        for n, winner in enumerate(["model_a", "model_b", "tie", "tie (bothbad)", "?"])
    ]
    assert [label.outcome for label in planned(arena, labels=True).labels] == ["first", "second", "tie", "both_bad"]


def test_a_question_that_comes_again_brings_its_label_with_the_sides_of_the_first():
    rows = [
        {"prompt": "q", "chosen": "x", "rejected": "y", "annotator": "1"},
        {"prompt": "q", "chosen": "y", "rejected": "x", "annotator": "2"},
        {"prompt": "q", "chosen": "y", "rejected": "x", "annotator": "2"},
    ]
    found = planned(rows, labels=True)
    assert [label.outcome for label in found.labels] == ["first", "second"]
    assert found.tasks[0].overlap == 2
    assert (found.warnings, found.left_out) == ({"another label of an earlier row": 1}, {"asked twice": 1})


def test_ids_that_two_questions_share_are_left_out():
    rows = [{"prompt": p, "first": "x", "second": "y", "item_id": "same"} for p in ("q", "r")]
    found = planned(rows)
    assert [task.id for task in found.tasks] == ["same"]
    assert found.left_out == {"with the id of another question": 1}


LEAKS = [
    "I'm Claude, made by Anthropic",
    "As ChatGPT, I cannot",
    "I am a large language model, trained by Google.",
    "My name is Qwen and I was created by Alibaba Cloud.",
    "Hello, I am DeepSeek.",
    "\u6211\u662fQwen",
]


@pytest.mark.parametrize("text", LEAKS)
def test_a_model_that_names_itself_is_found(text):
    assert names_itself(text)


@pytest.mark.parametrize(
    "text", ["Monet was born in Paris.", "Anthropic was founded in 2021.", "I am a large fan.", "Gemini is a sign.", ""]
)
def test_others_may_be_named(text):
    assert not names_itself(text)


def test_leaks_are_marked_or_left_out():
    rows = [{"prompt": "q", "a": LEAKS[0], "b": "hello"}, {"prompt": "r", "a": "x", "b": "y"}]
    found = planned(rows)
    assert found.warnings == {"in which a model names itself": 1}
    assert [task.prompt.columns.get("identity_leak") for task in found.tasks] == [True, None]
    found = planned(rows, leaks="leave_out")
    assert sides(found) == [("r", "x", "y")]
    assert found.left_out == {"in which a model names itself": 1}


def prose(rng, words):
    return " ".join("".join(rng.choice("abcdefghij") for _ in range(5)) for _ in range(words))


def test_near_duplicates_are_found_and_only_those():
    rng = random.Random(0)
    texts = [prose(rng, 60) for _ in range(300)]
    changed = []
    for text in texts[:40]:
        words = text.split()
        words[rng.randrange(60)] = "other"
        changed.append(" ".join(words))
    assert near_duplicates(texts + changed) == {300 + n: n for n in range(40)}
    assert near_duplicates(["What is 7 times 8?", "What is 7 times 9?", "what is  7 times 8 ?"]) == {2: 0}
    assert near_duplicates(["", "", "a"]) == {1: 0}


def test_near_duplicates_are_marked_or_left_out():
    rng = random.Random(1)
    text = prose(rng, 40)
    rows = [{"prompt": text + end, "a": "yes", "b": "no"} for end in (" one", " two")]
    found = planned(rows)
    assert found.warnings == {"nearly the same as another one": 1}
    assert found.tasks[1].prompt.columns["near_duplicate"] is True
    assert len(planned(rows, near="leave_out").tasks) == 1
    assert planned(rows, similarity=0.999).warnings == {}
    with pytest.raises(ConfigError, match="similarity"):
        Rules(similarity=0.1)


@pytest.mark.slow
def test_near_duplicates_among_twenty_thousand():
    rng = random.Random(2)
    texts = [prose(rng, 60) for _ in range(19_000)]
    texts += [f"{text} end" for text in texts[:1000]]
    assert len(near_duplicates(texts)) == 1000


@pytest.mark.parametrize(
    "choices", [Choices(), Choices(votes="soft", ties="soft", both_bad="soft"), Choices(ties="soft")]
)
def test_an_export_that_is_imported_is_the_same_export(tmp_path, choices):
    rng = random.Random(3)
    items = [
        pair(f"q{n}", f"a{n}", f"b{n}", round=n % 3, why="random", checkpoints=("p", "q"), overlap=3) for n in range(30)
    ]
    with PreferenceStore(tmp_path / "one.db") as store:
        store.add_tasks(items)
        for item in items:
            for person in ("ann", "bob", "cy")[: rng.randint(1, 3)]:
                details = {"answer": {"text": f"{person}'s own", "from": "second"}} if rng.random() < 0.3 else {}
                outcome = rng.choice(["first", "second", "tie", "both_bad"])
                store.submit(item.id, person, outcome, strength="much", details=details)
        made = export(Labelled.of(store), choices)
    made.write(tmp_path / "one.jsonl")
    assert {row["source"] for row in made.rows} == {"random", "edit"}
    with PreferenceStore(tmp_path / "two.db") as store:
        found = plan(load_table(tmp_path / "one.jsonl"), rules=Rules(labels=True))
        assert list(carry_out(store, found))[-1] == len(made.rows)
        assert found.left_out == {}
        export(Labelled.of(store), choices).write(tmp_path / "two.jsonl")
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


def test_the_same_file_again_brings_nothing(tmp_path):
    table = load_table([{"prompt": f"q{n}", "chosen": "x", "rejected": "y"} for n in range(3)])
    with PreferenceStore(tmp_path / "p.db") as store:
        list(carry_out(store, plan(table, rules=Rules(labels=True)), by="ann"))
        assert (store.count_items(), len(store.labels())) == (3, 3)
        again = plan(table, known=keys_of(store))
        assert (len(again.tasks), again.left_out) == (0, {"asked in the project already": 3})


def test_labels_come_in_while_a_large_file_is_imported(tmp_path):
    rows = [{"prompt": f"q{n} {'long ' * 60}", "a": "x " * 100, "b": "y " * 100} for n in range(3000)]
    found = planned(rows)
    with PreferenceStore(tmp_path / "p.db") as store:
        store.add_tasks([text_pair(f"r{n}") for n in range(40)])
        said, failed = [], []

        def label():
            try:
                for n in range(40):
                    said.append(store.submit(text_pair(f"r{n}").id, "ann", "first"))
            except Exception as error:
                failed.append(error)

        worker = threading.Thread(target=label)
        worker.start()
        steps = list(carry_out(store, found))
        worker.join()
        assert not failed and len(said) == len(store.labels()) == 40
        assert steps == [500, 1000, 1500, 2000, 2500, 3000]
        assert store.count_items() == 3040


def test_answers_of_ten_megabytes_are_left_out_and_counted():
    long = [{"role": role, "content": "x" * n} for role, n in (("system", 2_000_000), ("user", 1))]
    rows = [{"prompt": "q", "a": "x" * 10_000_000, "b": "y"}, {"prompt": "r", "a": "1", "b": "2"}]
    found = planned([*rows, {"prompt": long, "a": "1", "b": "2"}])
    assert sides(found) == [("r", "1", "2")]
    assert found.left_out == {"with a text of more than 1000000 characters": 2}


def test_exports_of_whole_stores_are_told_apart(tmp_path):
    with PreferenceStore(tmp_path / "p.db") as store:
        store.add_tasks([text_pair()])
        store.export(tmp_path / "p.jsonl")
    assert is_archive(load_table(tmp_path / "p.jsonl").columns)
    assert not is_archive(["prompt", "item"]) and not is_archive(["label"])


def test_parquet_csv_and_datasets_bring_the_same(tmp_path):
    import datasets

    rows = [{"prompt": f"q{n}", "response_a": f"a{n}", "response_b": f"b{n}"} for n in range(5)]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "x.csv").write_text("prompt,response_a,response_b\n" + "".join(f"q{n},a{n},b{n}\n" for n in range(5)))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    sources = [*(tmp_path / f"x.{kind}" for kind in ("jsonl", "csv", "parquet")), datasets.Dataset.from_list(rows)]
    tasks = [plan(load_table(source)).tasks for source in sources]
    assert len(tasks[0]) == 5 and tasks[0] == tasks[1] == tasks[2] == tasks[3]
    assert [read_upload(path).rows for path in sources[:3]] == [rows] * 3
