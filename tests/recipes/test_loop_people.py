"""A loop that waits for people, and what it can be asked to do instead of the defaults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.config import LabellerConfig, LoopConfig
from prefrl.data.comparisons import Item
from prefrl.data.preferences import PreferenceStore
from prefrl.errors import DataError
from prefrl.evaluate.run_folder import read
from prefrl.recipes.loop_files import by_id, fingerprint
from prefrl.recipes.loop_labels import Labels
from prefrl.types import Completion, Prompt

TINY = Path(__file__).parents[2] / "configs" / "tiny" / "loop.yaml"
NO_TASTE = ("--labeller.utility", "[]", "--labeller.noise", "0", "--labeller.tie_width", "0", "--labeller.flip", "0")
PEOPLE = ("--labeller.kind", "people", *NO_TASTE, "--comparisons", "2", "--policy.lr", "0.05")


@pytest.fixture(scope="module")
def flags(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    rows = [{"prompt": f"Say {i}"} for i in range(16)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ("--rounds", "1", "--steps", "1", "--pairs_per_round", "6", "--held_out_pairs", "3")
    return (str(TINY), "--policy.name", model, "--reward.model.name", model, "--data.train", str(path), *small)


def go(flags, output, *more):
    return main(["loop", *flags, "--output", str(output), *more])


def label(store, annotator="ann", outcome=None, most=1000):
    """Label what is open; the longer text is better. How many were labelled."""
    with PreferenceStore(store) as opened:
        items = opened.open_items(annotator)[:most]
        for item in items:
            longer = "first" if len(item.first.text) > len(item.second.text) else "second"
            opened.submit(item.id, annotator, outcome or longer)
    return len(items)


def round_of(output, number=1):
    return read(output).status["summary"][f"round {number}"]


def test_a_loop_waits_for_people_and_goes_on(flags, tmp_path, capsys):
    output, store = tmp_path / "run", tmp_path / "run" / "preferences.db"
    assert go(flags, output, *PEOPLE) == 0
    said = capsys.readouterr().out
    assert "Round 1 waits for people: 9 of 9 pairs still need a label." in said
    assert f"prefrl label {store}" in said and f"prefrl loop {output}/config.yaml" in said
    assert read(output).state == "waiting"
    assert "A loop in its first rounds" in (output / "report.html").read_text()
    assert label(store, most=4) == 4
    assert main(["loop", str(output / "config.yaml")]) == 0
    assert "5 of 9 pairs still need a label" in capsys.readouterr().out
    assert label(store) == 5
    assert go(flags, output, *PEOPLE) == 0
    said = capsys.readouterr().out
    assert "The comparison after round 1 waits for people: 2 of 2" in said
    assert label(store, outcome="first") == 2
    assert go(flags, output, *PEOPLE) == 0
    assert read(output).state == "finished"
    assert (round_of(output)["win_rate"], round_of(output)["won"]) == (1.0, 2)
    assert round_of(output)["labels"] == 9 and round_of(output)["annotators"] == 1


def test_comparisons_come_in_the_sitting_of_the_next_pairs(flags, tmp_path, capsys):
    output, store = tmp_path / "run", tmp_path / "run" / "preferences.db"
    more = (*PEOPLE, "--rounds", "2")
    assert go(flags, output, *more) == 0
    assert label(store) == 9
    assert go(flags, output, *more) == 0
    assert "Round 2 waits" in capsys.readouterr().out
    assert label(store) == 11  # 9 pairs of round 2, and 2 comparisons of round 1
    assert go(flags, output, *more) == 0
    assert label(store) == 2
    assert go(flags, output, *more) == 0
    assert read(output).state == "finished"


def test_skips_and_second_thoughts(flags, tmp_path, capsys):
    output, store = tmp_path / "run", tmp_path / "run" / "preferences.db"
    go(flags, output, *PEOPLE)
    label(store, outcome="skip", most=1)
    label(store)
    with PreferenceStore(store) as opened:
        changed = opened.labels()[-1]
        opened.submit(changed.item, "ann", "tie")
    go(flags, output, *PEOPLE)
    rows = [json.loads(line) for line in (output / "rounds" / "1" / "judgements.jsonl").read_text().splitlines()]
    assert {row["label"]["outcome"] for row in rows} >= {"skip", "tie"}
    assert next(row["label"]["version"] for row in rows if row["item"]["id"] == changed.item) == 2
    label(store, outcome="skip")  # nobody could compare: there is no win rate, and the loop ends all the same
    assert go(flags, output, *PEOPLE) == 0
    assert "none of 2 comparisons with the start could be judged" in capsys.readouterr().out
    assert "win_rate" not in round_of(output) and round_of(output)["unjudged"] == 2
    assert "which were all: it has no win rate" in (output / "report.html").read_text()


@pytest.mark.parametrize("outcome", ["skip", "tie", "both_bad"])
def test_a_round_that_teaches_nothing_asks_for_more(outcome, flags, tmp_path, capsys):
    output, store = tmp_path / "run", tmp_path / "run" / "preferences.db"
    go(flags, output, *PEOPLE)
    assert label(store, outcome=outcome) == 9
    assert go(flags, output, *PEOPLE) == 0
    said = capsys.readouterr().out
    assert "nothing can be learnt from its 9 pairs; 6 more are asked for" in said
    assert "Round 1 waits for people: 6 of 15 pairs" in said
    assert label(store) == 6
    go(flags, output, *PEOPLE)
    assert label(store) == 2
    assert go(flags, output, *PEOPLE) == 0
    assert read(output).state == "finished"
    names = [phase["name"] for phase in json.loads((output / "loop.json").read_text())["phases"]]
    assert names.index("1/more_1") == names.index("1/label") - 1
    assert round_of(output)["labels"] == (6 if outcome == "skip" else 15)


def test_a_round_without_further_pairs_says_what_to_do_and_is_not_stuck(flags, tmp_path, capsys):
    output, store = tmp_path / "run", tmp_path / "run" / "preferences.db"
    more = (*PEOPLE, "--pairs_per_round", "1000", "--max_per_prompt", "100")
    go(flags, output, *more)
    label(store, outcome="tie")
    assert go(flags, output, *more) == 2
    assert "Change some of their labels, then type the same again" in capsys.readouterr().err
    with PreferenceStore(store) as opened:
        for item in opened.items():
            opened.submit(item.id, "ann", "first" if len(item.first.text) > len(item.second.text) else "second")
    assert go(flags, output, *more) == 0
    assert "The comparison after round 1 waits" in capsys.readouterr().out


def test_two_bad_answers_are_a_tie_in_win_rates(flags, tmp_path):
    output, store = tmp_path / "run", tmp_path / "run" / "preferences.db"
    go(flags, output, *PEOPLE)
    label(store, outcome="both_bad", most=2)
    label(store)
    go(flags, output, *PEOPLE)
    label(store, outcome="both_bad", most=1)
    label(store, outcome="first")
    assert go(flags, output, *PEOPLE) == 0
    found = round_of(output)
    assert (found["both_bad"], found["won"], found["tied"], found["win_rate"]) == (2, 1, 1, 0.75)
    assert "as bad as the start" in {row.get("badge") for row in read(output).samples}


def test_what_a_loop_waits_for_is_written_down(flags, tmp_path):
    output = tmp_path / "run"
    go(flags, output, *PEOPLE)
    rows = [json.loads(line) for line in (output / "rounds" / "1" / "items.jsonl").read_text().splitlines()]
    assert read(output).status["items"] == [row["id"] for row in rows]


def test_checkpoints_have_names_of_their_own_in_a_shared_store(flags, tmp_path):
    output, store = tmp_path / "run", tmp_path / "store.db"
    go(flags, output, *PEOPLE, "--labeller.store", str(store), "--labeller.name", "loop-7", "--previous_samples", "0")
    with PreferenceStore(store) as opened:
        assert {item.checkpoints for item in opened.items()} == {("loop-7/start", "loop-7/start")}


def test_several_people_label_a_pair(flags, tmp_path, capsys):
    output, store = tmp_path / "run", tmp_path / "store.db"
    more = (*PEOPLE, "--labeller.overlap", "2", "--labeller.store", str(store))
    go(flags, output, *more)
    assert label(store, "ann") == 9 and label(store, "ann") == 0
    go(flags, output, *more)
    assert "9 of 9 pairs still need a label of 2 people each" in capsys.readouterr().out
    assert label(store, "bob") == 9
    go(flags, output, *more)
    assert label(store, "ann", "first") + label(store, "bob", "second") == 4
    assert go(flags, output, *more) == 0
    assert (round_of(output)["won"], round_of(output)["lost"], round_of(output)["labels"]) == (2, 2, 18)
    assert not (output / "preferences.db").exists()
    assert {row.get("badge", "") for row in read(output).samples} == {""}  # they disagreed on every answer


def test_a_store_of_another_loop_does_not_say_what_an_item_is_for(tmp_path):
    config = LoopConfig(labeller=LabellerConfig(kind="people", store=str(tmp_path / "store.db")))
    mine = Item(
        prompt=Prompt(id="p", text="Say"), first=Completion(text="a"), second=Completion(text="b"), why="held out"
    )
    with PreferenceStore(tmp_path / "store.db") as store:
        store.add_items([replace(mine, why="random")])
        store.submit(mine.id, "ann", "first")
    (found,) = Labels(config, tmp_path).collect([mine], {mine.id: mine}, "Round 1")
    assert found.item == mine  # a held-out pair is not trained on


def test_an_id_of_two_prompts_is_refused():
    one, same, other = (Prompt(id="1", text=text) for text in ("a", "a", "b"))
    assert by_id([one, same]) == {"1": one}
    with pytest.raises(DataError, match="'1' names two different prompts"):
        by_id([one, other])


def test_prompts_are_told_apart_by_their_columns_too():
    one, other = (Prompt(id="1", text="a", columns={"answer": answer}) for answer in "12")
    assert fingerprint([one], []) != fingerprint([other], [])


def test_overwriting_keeps_what_people_said(flags, tmp_path, capsys):
    output = tmp_path / "run"
    go(flags, output, *PEOPLE)
    label(output / "preferences.db", most=3)
    assert go(flags, output, *PEOPLE, "--overwrite") == 0
    kept = tmp_path / "run-labels-1.jsonl"
    assert f"3 labels of people in {output}/preferences.db were put into {kept}" in capsys.readouterr().out
    with PreferenceStore(output / "preferences.db") as store:
        assert store.labels() == []
        assert store.import_(kept) == 3  # the items are the same ones
        assert len(store.labels()) == 3


@pytest.mark.parametrize(
    "more",
    [
        ("--learn", "pairs", "--algorithm", "dpo"),
        ("--algorithm", "dpo", "--algorithm.group_size", "4"),
        ("--learn", "pairs", "--algorithm", "dpo", "--restart"),
        ("--warm_start", "--restart", "--select", "random"),
        ("--warm_start", "--reward.ensemble.members", "2", "--combine", "lcb"),
        ("--policy.lora", "2", "--reward.model.lora", "2", "--previous_samples", "0"),
        ("--judge", "[{kind: length_band, low: 1, high: 4, unit: characters}]", "--held_out_pairs", "0"),
    ],
    ids=["offline", "online", "offline_anew", "warm", "ensemble", "lora", "judge"],
)
def test_other_loops(more, flags, tmp_path):
    assert go(flags, tmp_path / "run", "--rounds", "2", *more) == 0
    run = read(tmp_path / "run")
    assert [line["round"] for line in run.metrics if line["phase"] == "round"] == [1, 2]
    start = [
        p["figures"]["start"]
        for p in json.loads((run.path / "loop.json").read_text())["phases"]
        if "optimize" in p["name"]
    ]
    assert start == (["start", "start"] if "--restart" in more else ["start", "round_1/policy"])
    if "--select" in more:
        rows = [json.loads(line) for line in (run.path / "rounds/2/items.jsonl").read_text().splitlines()]
        assert {row["why"] for row in rows} == {"random", "held out"}
    if "--held_out_pairs" in more:
        assert "accuracy" not in run.status["summary"]["round 1"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--labeller.utility", "[]"), "labeller.utility is empty"),
        (("--labeller.kind", "people"), "labeller.utility, labeller.noise, labeller.tie_width, labeller.flip"),
        (("--labeller.overlap", "2", "--labeller.store", "x.db"), "labeller.store, labeller.overlap"),
        (("--labeller.name", "x"), "labeller.name"),
        (("--diversity", "-1"), "diversity is -1"),
        ((*PEOPLE, "--comparisons", "0"), "comparisons is 0"),
        (("--combine", "lcb"), "reward.ensemble.members"),
        (("--learn", "pairs"), "has no pair loss"),
        (("--reward.output", "x", "--reward.data.train", "y"), "reward.output, reward.data.train"),
        (("--samples", "1"), "samples is 1"),
        (("--data.eval_fraction", "0"), "no held-out prompts"),
        (("--algorithm", "opd"), "teacher"),
        (("--labeller.utility", "[{kind: lenght_band}]"), "length_band"),
    ],
)
def test_what_no_loop_can_be(more, says, flags, tmp_path, capsys):
    assert go(flags, tmp_path / "run", *more) == 2
    assert says in capsys.readouterr().err


def test_nothing_to_label_is_an_error(flags, tmp_path, capsys):
    same = ("--sampling.temperature", "0.0001", "--sampling.max_new_tokens", "2")
    assert go(flags, tmp_path / "run", *same) == 2
    assert "pairs of completions are identical" in capsys.readouterr().err
