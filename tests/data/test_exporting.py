"""Labels as rows: what people said, in the item's own order, nothing left out without a count."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from labelled import chat, pair, solution, text_pair

from prefrl.data.comparisons import CheckItem, Clip, Label
from prefrl.data.exporting import Choices, Labelled, export
from prefrl.data.formats import to_pairs
from prefrl.data.preferences import PreferenceStore
from prefrl.data.splits import check_disjoint
from prefrl.data.tables import load_table
from prefrl.errors import ConfigError, DataError
from prefrl.types import Completion


def label(item, annotator, outcome, version=1, **more):
    return Label(
        id=f"{item.id}-{annotator}-{version}",
        item=item.id,
        annotator=annotator,
        version=version,
        outcome=outcome,
        **more,
    )


def labelled(said, **more):
    """Items with what each person said: {item: {person: outcome or label}}."""
    labels = [
        what if isinstance(what, Label) else label(item, person, what)
        for item, votes in said
        for person, what in votes.items()
    ]
    return Labelled(tasks=[item for item, _ in said], labels=labels, **more)


def texts(rows):
    return [(row["chosen"], row["rejected"]) for row in rows]


ONE = text_pair("one?", "a1", "b1", round=2, why="random", checkpoints=("p0", "p1"))
TWO = text_pair("two?", "a2", "b2")
THREE = text_pair("three?", "a3", "b3")


def test_a_pair_as_trl_has_it():
    made = export(labelled([(ONE, {"ann": "second", "bob": "second", "cy": "first"})], secret="p"))
    (row,) = made.rows
    assert {name: row[name] for name in ("prompt", "chosen", "rejected")} == {
        "prompt": "one?",
        "chosen": "b1",
        "rejected": "a1",
    }
    assert (row["n_votes"], row["agreement"], row["round"], row["source"]) == (3, 0.666666667, 2, "random")
    assert row["checkpoints"] == ["p1", "p0"]
    assert row["item_id"] == ONE.id
    assert len(set(row["annotator_ids"])) == 3 and not {"ann", "bob", "cy"} & set(row["annotator_ids"])
    assert made.left_out == {}


def test_messages_stay_messages():
    (row,) = export(labelled([(pair("q", "one", "two"), {"ann": "first"})])).rows
    assert row["prompt"] == [{"role": "user", "content": "q"}]
    assert row["chosen"] == [{"role": "assistant", "content": "one"}]


def test_one_label_is_one_row_and_every_reason_is_counted():
    clips = dataclasses.replace(text_pair("clip?", "x", "y"), clips=(Clip(states=((0.0,),)), Clip(states=((1.0,),))))
    said = [
        (ONE, {"ann": "first"}),
        (TWO, {}),
        (THREE, {"ann": "skip"}),
        (text_pair("4?"), {"ann": "first", "bob": "second"}),
        (text_pair("5?"), {"ann": "tie"}),
        (text_pair("6?"), {"ann": "both_bad"}),
        (text_pair("7?"), {"ann": "first"}),
        (clips, {"ann": "first"}),
        (solution(), {}),
    ]
    made = export(labelled(said, gold={said[6][0].id}))
    assert texts(made.rows) == [("a1", "b1")]
    assert made.left_out == {
        "without a label": 1,
        "skipped by everybody": 1,
        "as many votes for one as for the other": 1,
        "called a tie": 1,
        "called both bad": 1,
        "with a known answer": 1,
        "clips, which have no text": 1,
        "without a pair of answers": 1,
    }
    assert "1 row" in made.summary() and "1 called a tie" in made.summary()


def test_the_last_version_counts():
    labels = [label(ONE, "ann", "first"), label(ONE, "bob", "first"), label(ONE, "ann", "second", version=2)]
    labels += [label(ONE, "cy", "second", version=2), label(ONE, "cy", "first", version=1)]
    data = Labelled(tasks=[ONE], labels=labels)
    assert texts(export(data).rows) == [("b1", "a1")]
    assert [row["version"] for row in export(data, Choices(format="votes")).rows] == [1, 1, 2, 2, 1]
    assert [row["live"] for row in export(data, Choices(format="votes")).rows] == [False, True, True, True, False]


def test_who_settles_a_dispute_is_the_only_one_who_counts():
    settled = label(ONE, "rev", "second", details={"adjudication": True})
    (row,) = export(labelled([(ONE, {"ann": "first", "bob": "first", "rev": settled})])).rows
    assert (row["chosen"], row["n_votes"], row["agreement"]) == ("b1", 1, 1.0)


def test_ties_are_soft_on_demand_and_two_bad_ones_apart():
    said = [(ONE, {"ann": "tie"}), (TWO, {"ann": "both_bad"}), (THREE, {"ann": "second"})]
    rows = export(labelled(said), Choices(ties="soft")).rows
    assert [(row["chosen"], row["label"], row["tie"]) for row in rows] == [("a1", 0.5, 1.0), ("b3", 1.0, 0.0)]
    made = export(labelled(said), Choices(both_bad="soft"))
    assert [(row["chosen"], row["label"], row["tie"]) for row in made.rows] == [("a2", 0.5, 1.0), ("b3", 1.0, 0.0)]
    assert made.left_out == {"called a tie": 1}


def test_soft_votes_are_shares():
    votes = {"a": "second", "b": "second", "c": "first", "d": "tie", "e": "skip"}
    (row,) = export(labelled([(ONE, votes)]), Choices(votes="soft", ties="soft")).rows
    assert (row["chosen"], row["label"], row["tie"]) == ("b1", 0.666666667, 0.25)
    (row,) = export(labelled([(ONE, votes)]), Choices(votes="soft")).rows
    assert (row["label"], row["tie"], row["n_votes"]) == (0.666666667, 0.0, 3)
    (row,) = export(labelled([(ONE, {"a": "first", "b": "second"})]), Choices(votes="soft")).rows
    assert (row["chosen"], row["label"]) == ("a1", 0.5)


def test_each_label_is_a_row():
    data = labelled([(ONE, {"ann": "first", "bob": "second", "cy": "skip"})])
    rows = export(data, Choices(votes="each", names=True)).rows
    assert [(row["chosen"], row["annotator"]) for row in rows] == [("a1", "ann"), ("b1", "bob")]


def test_reliability_weighs_votes():
    votes = {"good": "first", "x": "second", "y": "second"}
    known = {"good": 0.95, "x": 0.6, "y": 0.6}
    data = labelled([(ONE, votes)])
    (row,) = export(data, Choices(reliability=known)).rows
    odds = 19.0 / 1.5 / 1.5  # 0.95 to 0.05 for, twice 0.6 to 0.4 against
    assert row["chosen"] == "a1"
    assert row["weight"] == pytest.approx(2 * odds / (1 + odds) - 1, abs=1e-8)
    (row,) = export(data, Choices(reliability=known, votes="soft")).rows
    assert row["label"] == pytest.approx(odds / (1 + odds), abs=1e-8)
    (row,) = export(labelled([(ONE, {"bad": "first"})]), Choices(reliability={"bad": 0.1})).rows
    assert row["chosen"] == "b1"
    (row,) = export(labelled([(ONE, {"new": "first"})]), Choices(reliability={"x": 0.75}, votes="soft")).rows
    assert row["label"] == pytest.approx(0.75)
    with pytest.raises(ConfigError, match="in \\[0, 1\\]"):
        Choices(reliability={"x": 1.5})


def test_margins_are_those_of_the_strength_most_gave():
    strengths = {"a": "much", "b": "much", "c": "slightly", "d": "clearly"}
    said = {
        name: label(ONE, name, "second" if name == "d" else "first", strength=word) for name, word in strengths.items()
    }
    (row,) = export(labelled([(ONE, said)]), Choices(margins={"slightly": 1.0, "clearly": 2.0, "much": 3.0})).rows
    assert (row["strength"], row["margin"], row["agreement"]) == ("much", 3.0, 0.75)
    assert "margin" not in export(labelled([(ONE, said)])).rows[0]
    with pytest.raises(DataError, match=r"labels\.strengths"):
        export(labelled([(ONE, said)]), Choices(margins={"slightly": 1.0}))


def better(item, person, text, origin, outcome="first"):
    return label(item, person, outcome, details={"answer": {"text": text, "from": origin}})


def test_a_better_answer_is_a_row_to_imitate_and_a_pair_with_its_original():
    said = {"ann": better(ONE, "ann", "b1 mended", "second"), "bob": better(ONE, "bob", "b1 mended", "second")}
    said["cy"] = better(ONE, "cy", "from nothing", "")
    said["dee"] = better(ONE, "dee", " a1 ", "first")
    data = labelled([(ONE, said), (TWO, {"ann": "first"})])
    rows = export(data).rows
    assert texts(rows) == [("a1", "b1"), ("b1 mended", "b1"), ("a2", "b2")]
    assert (rows[1]["source"], rows[1]["n_votes"], rows[1]["checkpoints"]) == ("edit", 2, ["", "p1"])
    assert texts(export(data, Choices(edits=False)).rows) == [("a1", "b1"), ("a2", "b2")]
    sft = export(data, Choices(format="sft"))
    assert [row["completion"] for row in sft.rows] == ["b1 mended", "b1 mended", "from nothing", " a1 "]
    assert sft.left_out == {"without a better answer": 1}


def test_single_answers():
    check = CheckItem(prompt=chat("7*8?"), completion=Completion(text="56"))
    unsure = CheckItem(prompt=chat("7*9?"), completion=Completion(text="62"))
    said = [
        (pair("q", "good", "bad"), {"ann": "first"}),
        (pair("r", "bad", "worse"), {"ann": "both_bad"}),
        (pair("s"), {"ann": "tie"}),
        (check, {"ann": "right", "bob": "right", "cy": "wrong"}),
        (unsure, {"ann": "unsure"}),
    ]
    made = export(labelled(said), Choices(format="unpaired"))
    assert [(row["completion"][0]["content"], row["label"]) for row in made.rows] == [
        ("good", True),
        ("bad", False),
        ("bad", False),
        ("worse", False),
        ("56", True),
    ]
    assert made.left_out == {"called a tie": 1, "without a label that says right or wrong": 1}


def rated(item, person, ratings, **more):
    return label(item, person, "steps", details={"ratings": ratings, **more})


def test_steps_up_to_the_first_one_that_nobody_judged():
    item = solution(answer="3")
    said = [(item, {"ann": rated(item, "ann", [1, 0, -1]), "bob": rated(item, "bob", [1, -1, None])})]
    (row,) = export(labelled(said), Choices(format="stepwise")).rows
    assert (row["completions"], row["labels"], row["n_steps"]) == (["1+1=2"], [True], 3)
    (row,) = export(labelled(said), Choices(format="stepwise", neutral=False)).rows
    assert (row["completions"], row["labels"]) == (["1+1=2", "2+1=3", "so 3"], [True, False, False])
    empty = [(item, {"ann": rated(item, "ann", [None, 1, 1])})]
    left_out = export(labelled(empty), Choices(format="stepwise")).left_out
    assert left_out == {"with a first step that most people do not agree on, or nobody rated": 1}


def test_the_shape_of_prm800k():
    item = solution(answer="3", round=4)
    first = rated(item, "ann", [1, -1], alternatives={"1": "2+1=three"}, active_ms=1200)
    whole, skipped = rated(item, "bob", [1, 1, None], unsure=[2]), label(item, "cy", "skip")
    data = labelled([(item, {"ann": first, "bob": whole, "cy": skipped})], secret="p")
    rows = export(data, Choices(format="prm800k")).rows
    assert [row["label"]["finish_reason"] for row in rows] == ["found_error", "solution", "give_up"]
    assert rows[0]["question"] == {"problem": "1+1+1?", "ground_truth_answer": "3"}
    assert (rows[0]["label"]["total_time"], rows[0]["generation"]) == (1200, 4)
    assert rows[0]["label"]["steps"] == [
        {
            "completions": [{"text": "1+1=2", "rating": 1, "flagged": False}],
            "human_completion": None,
            "chosen_completion": 0,
        },
        {
            "completions": [{"text": "2+1=3", "rating": -1, "flagged": False}],
            "human_completion": {"text": "2+1=three", "rating": None, "flagged": False},
            "chosen_completion": None,
        },
    ]
    assert rows[1]["label"]["steps"][2]["completions"] == [{"text": "so 3", "rating": None, "flagged": True}]


def test_all_votes_keep_everything():
    item = solution()
    said = [(ONE, {"ann": label(ONE, "ann", "first", note="why", details={"criteria": {"truth": 1}})}), (item, {})]
    made = export(labelled(said, gold={ONE.id}, secret="p"), Choices(format="votes"))
    (row,) = made.rows
    assert (row["first"], row["second"], row["outcome"], row["note"], row["gold"]) == ("a1", "b1", "first", "why", True)
    assert json.loads(row["details"]) == {"criteria": {"truth": 1}}
    assert made.left_out == {"without a label": 1}


def test_names_are_hashed_with_the_project():
    first, second = (export(labelled([(ONE, {"ann": "first"})], secret=p)).rows[0]["annotator_ids"] for p in ("p", "q"))
    assert first != second
    assert export(labelled([(ONE, {"ann": "first"})], secret="p")).rows[0]["annotator_ids"] == first
    assert export(labelled([(ONE, {"ann": "first"})]), Choices(names=True)).rows[0]["annotator_ids"] == ["ann"]


def test_texts_become_messages_where_others_are():
    made = export(labelled([(TWO, {"ann": "first"}), (pair("q"), {"ann": "first"})]))
    assert made.rows[0]["prompt"] == [{"role": "user", "content": "two?"}]
    assert made.rows[0]["chosen"] == [{"role": "assistant", "content": "a2"}]
    assert made.notes == {"written as messages, since others are": 1}
    assert len(made.dataset()) == 2


def test_prompts_are_never_on_both_sides_of_a_split():
    items = [text_pair(f"q{n // 2}?", f"a{n}", f"b{n}") for n in range(40)]
    made = export(labelled([(item, {"ann": "first"}) for item in items]), Choices(held_out=0.25, seed=3))
    train, test = (to_pairs(load_table(list(made.splits[name]))).items for name in ("train", "test"))
    check_disjoint(train, test)
    assert len(train) + len(test) == 40 and 4 <= len(test) <= 16
    assert "(train " in made.summary()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_the_same_labels_are_the_same_bytes(tmp_path, suffix):
    data = labelled([(ONE, {"ann": "first"}), (text_pair("\ud800?", "a\ud800", "\u00e4"), {"ann": "second"})])
    for name in ("x", "y"):
        assert export(data).write(tmp_path / f"{name}{suffix}") == [tmp_path / f"{name}{suffix}"]
    assert (tmp_path / f"x{suffix}").read_bytes() == (tmp_path / f"y{suffix}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"x{suffix}", f"y{suffix}"]
    rows = load_table(tmp_path / f"x{suffix}").rows
    assert rows[0] == export(data).rows[0]
    assert rows[1]["chosen"] == "\u00e4"
    if suffix == ".jsonl":
        assert rows == export(data).rows


def test_splits_are_files_of_their_own(tmp_path):
    items = [text_pair(f"q{n}?") for n in range(10)]
    made = export(labelled([(item, {"ann": "first"}) for item in items]), Choices(held_out=0.3))
    files = made.write(tmp_path / "x.jsonl")
    assert [file.name for file in files] == ["x.train.jsonl", "x.test.jsonl"]
    assert sum(len(load_table(file).rows) for file in files) == 10
    assert set(made.dataset()) == {"train", "test"}


def test_nothing_and_nowhere_are_said(tmp_path):
    with pytest.raises(DataError, match="1 without a label"):
        export(labelled([(ONE, {})])).write(tmp_path / "x.jsonl")
    with pytest.raises(ConfigError, match=r"\.jsonl, \.parquet"):
        export(labelled([(ONE, {"ann": "first"})])).write(tmp_path / "x.csv")
    with pytest.raises(DataError, match="Cannot write"):
        export(labelled([(ONE, {"ann": "first"})])).write(tmp_path / "no" / "x.jsonl")
    with pytest.raises(ConfigError, match="Did you mean 'preference'"):
        Choices(format="preferences")


def test_sides_are_those_of_the_item_whatever_people_saw(tmp_path):
    """200 items, two people: about half are shown exchanged, and the export is in the order of the item."""
    items = [text_pair(f"q{n}?", f"a{n}", f"b{n}", overlap=2) for n in range(200)]
    with PreferenceStore(tmp_path / "p.db") as store:
        store.add_tasks(items)
        exchanged = {}
        for person in ("ann", "bob"):
            while given := store.work.next(person, count=16):
                for assignment in given:
                    store.work.submit(assignment.id, person, "first", label_id=assignment.id)
                    exchanged[assignment.item, person] = assignment.exchanged
        rows = export(Labelled.of(store)).rows
    assert texts(rows) == [(f"a{n}", f"b{n}") for n in range(200)]
    shares = [sum(seen for (_, who), seen in exchanged.items() if who == person) / 200 for person in ("ann", "bob")]
    assert all(abs(share - 0.5) < 4 * math.sqrt(0.25 / 200) for share in shares)
    assert [exchanged[item.id, "ann"] for item in items] != [exchanged[item.id, "bob"] for item in items]


def test_a_whole_store_comes_back_as_it_was(tmp_path):
    with PreferenceStore(tmp_path / "a.db") as store, PreferenceStore(tmp_path / "b.db") as other:
        store.add_tasks([ONE, pair("q"), solution()])
        store.submit(ONE.id, "ann", "second", details={"answer": {"text": "mended", "from": "first"}})
        store.submit(ONE.id, "ann", "first")
        store.submit(solution().id, "ann", "steps", details={"ratings": [1, 0, -1]})
        store.export(tmp_path / "a.jsonl")
        other.import_(tmp_path / "a.jsonl")
        other.export(tmp_path / "b.jsonl")
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
        for form in ("preference", "votes", "stepwise", "sft"):
            one, two = (export(Labelled.of(s), Choices(format=form, names=True)) for s in (store, other))
            assert one == two


def test_a_store_is_training_data(tmp_path):
    with PreferenceStore(tmp_path / "preferences.db") as store:
        items = [pair(f"q{n}") for n in range(30)]
        store.add_tasks(items)
        for n, item in enumerate(items):
            store.submit(item.id, "ann", ("first", "second", "tie", "both_bad")[n % 4])
        expected = store.pairs()
    whole = to_pairs(load_table(tmp_path)).items
    judged = [(p.prompt.content, p.chosen.text, p.rejected.text, p.label, p.tie, p.annotator) for p in whole]
    assert judged == [(p.prompt.content, p.chosen.text, p.rejected.text, p.label, p.tie, p.annotator) for p in expected]
    parts = [to_pairs(load_table(f"{tmp_path}/preferences.db#{part}")).items for part in ("train", "test")]
    assert len(parts[0]) + len(parts[1]) == 30 and parts[1]
    check_disjoint(*parts)
    with pytest.raises(DataError, match="#train and #test"):
        load_table(f"{tmp_path}#tset")
    with pytest.raises(DataError, match="no preference store"):
        load_table(tmp_path / "other.db")


def test_a_store_without_labels_says_so(tmp_path):
    with PreferenceStore(tmp_path / "preferences.db") as store:
        store.add_tasks([ONE])
    with pytest.raises(DataError, match="1 without a label"):
        load_table(tmp_path)
