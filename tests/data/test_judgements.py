from __future__ import annotations

from typing import Any

import pytest

from prefrl.config import LabelConfig
from prefrl.data import comparisons
from prefrl.data.comparisons import Item, Label
from prefrl.data.formats import to_pairs, to_rankings
from prefrl.data.judgements import pairs_of, resolve_ties, to_judgements, weigh_annotators
from prefrl.data.tables import load_table
from prefrl.errors import DataError
from prefrl.types import Completion, Pair, Prompt, Ranking

ROW = {"prompt": "p", "chosen": "a", "rejected": "b"}
LIST = {"prompt": "p", "completions": ["a", "b", "c"], "ranks": [2, 1, 3]}
STRENGTHS = {"slightly": 0.0, "much": 1.5}


def said(strengths: dict[str, float] | None = None, **columns: Any) -> Pair:
    (pair,) = to_pairs(load_table([{**ROW, **columns}]), strengths=strengths).items
    return pair


def reason(**columns: Any) -> str:
    """Why a row with these columns is dropped, beside a good one where the columns are filled."""
    with pytest.raises(DataError) as error:
        said(**columns)
    return str(error.value)


def ranking(*ranks: int, weight: float = 1.0, annotator: str = "") -> Ranking:
    completions = tuple(Completion(text=letter) for letter in "abcdef"[: len(ranks)])
    prompt = Prompt(id="1", text="p")
    return Ranking(prompt=prompt, completions=completions, ranks=ranks, weight=weight, annotator=annotator)


def pair(**fields: Any) -> Pair:
    return Pair(prompt=Prompt(id="1", text="p"), chosen=Completion(text="a"), rejected=Completion(text="b"), **fields)


# Ties, votes and annotators. -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "label", "tie"),
    [
        ({"label": "tie"}, 0.5, 1.0),
        ({"label": " Tie "}, 0.5, 1.0),
        ({"label": 0.5}, 0.5, 0.0),  # a soft label: half of the people prefer each, and nobody is undecided
        ({"tie": True}, 0.5, 1.0),
        ({"tie": "false"}, 1.0, 0.0),
        ({"tie": 0.25}, 1.0, 0.25),
        ({"tie": 0.25, "label": 0.75}, 0.75, 0.25),
        ({"tie": True, "label": 1.0}, 0.5, 1.0),
        ({"tie": False, "label": "tie"}, 0.5, 1.0),
        ({"votes": [1, 1, 2, 0]}, 2 / 3, 0.25),
        ({"votes": [2, 2, 1, 0]}, 2 / 3, 0.25),  # which answer was shown first says nothing of which is `chosen`
        ({"votes": [2]}, 1.0, 0.0),
        ({"votes": [0, "0"]}, 0.5, 1.0),
    ],
)
def test_what_was_said(columns: dict[str, Any], label: float, tie: float) -> None:
    pair = said(**columns)
    assert (pair.label, pair.tie) == (pytest.approx(label), tie)
    assert pair.prompt.columns == {name: value for name, value in columns.items() if name == "votes"}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"tie": None}, "tie is not a finite number"),
        ({"tie": "perhaps"}, "tie is not a finite number"),
        ({"tie": 1.5}, "tie is not between 0 and 1"),
        ({"label": "first"}, "label is not a finite number"),
        ({"votes": 3}, "votes is not a list of votes"),
        ({"votes": []}, "votes is not a list of votes"),
        ({"votes": [1, 3]}, r"a vote is not 1 or 2 (for one of the answers) or 0 (tie)"),
        ({"votes": [1, "first"]}, "vote is not a finite number"),
    ],
)
def test_what_cannot_be_meant(columns: dict[str, Any], expected: str) -> None:
    assert f"1 {expected} (first: row 1)" in reason(**columns)


@pytest.mark.parametrize("other", ["label", "tie"])
def test_votes_and_their_result_are_not_both_read(other: str) -> None:
    assert f"has the columns 'votes' and {other!r}, which say the same thing" in reason(votes=[1], **{other: 1})


@pytest.mark.parametrize(("given", "name"), [("ann", "ann"), (7, "7"), (None, ""), (" bob ", "bob")])
def test_annotators(given: Any, name: str) -> None:
    assert said(annotator=given).annotator == name


# Strengths. ------------------------------------------------------------------------------------------------------


def test_strengths_become_margins() -> None:
    assert said(STRENGTHS, strength="much").margin == 1.5
    assert said(STRENGTHS, strength="much").prompt.columns == {}
    assert said({"1": 0.2, "2.0": 0.7}, strength=2).margin == 0.7
    assert said({"1": 0.2, "2.0": 0.7}, strength="1").margin == 0.2


def test_strengths_are_left_alone_without_a_map() -> None:
    pair = said(strength="much", margin=0.3)
    assert pair.margin == 0.3
    assert pair.prompt.columns == {"strength": "much"}


def test_a_tie_needs_no_strength() -> None:
    assert said(STRENGTHS, label="tie", strength=None).margin == 0.0
    assert said(STRENGTHS, label="tie", strength="about the same").margin == 0.0
    assert "1 empty strength" in reason(strengths=STRENGTHS, label=1, strength="")


def test_unknown_strengths_are_an_error() -> None:
    message = r"strength is 'muhc'; margins are given for slightly, much\. Did you mean 'much'\? Add it to labels.str"
    with pytest.raises(DataError, match=message):
        said(STRENGTHS, strength="muhc")
    with pytest.raises(DataError, match=r"has no column 'strength', but margins are given for slightly, much; its col"):
        said(STRENGTHS)
    with pytest.raises(DataError, match="has the columns 'strength' and 'margin', which say the same thing"):
        said(STRENGTHS, strength="much", margin=1)


# Ranked lists. ---------------------------------------------------------------------------------------------------


def test_ranked_lists() -> None:
    (found,) = to_rankings(load_table([{**LIST, "weight": 2, "annotator": "ann", "source": "s"}])).items
    assert [completion.text for completion in found.completions] == ["a", "b", "c"]
    assert (found.ranks, found.weight, found.annotator) == ((2, 1, 3), 2.0, "ann")
    assert found.prompt.columns == {"source": "s"}


@pytest.mark.parametrize(
    ("places", "ranks"),
    [
        ({"ranks": [1, 1, 3]}, (1, 1, 2)),
        ({"ranks": [0, 2, 1]}, (1, 3, 2)),
        ({"scores": [0.5, 9.0, 0.5]}, (2, 1, 2)),
        ({"scores": [-1, -2, -3]}, (1, 2, 3)),
        ({"ranks": None, "scores": [1, 2, 3]}, (3, 2, 1)),
    ],
)
def test_ranks_start_at_one(places: dict[str, Any], ranks: tuple[int, ...]) -> None:
    row = {name: value for name, value in LIST.items() if name != "ranks"}
    assert to_rankings(load_table([{**row, **places}])).items[0].ranks == ranks


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"completions": ["a"]}, "completions is not a list of two or more"),
        ({"completions": "abc"}, "completions is not a list of two or more"),
        ({"completions": ["a", "b", " "]}, "empty completion"),
        ({"completions": ["a", "b", "a"]}, "two completions are equal"),
        ({"ranks": [1, 2]}, "ranks is not a list with one number a completion"),
        ({"ranks": [1, 2, None]}, "rank is not a finite number"),
        ({"prompt": ""}, "empty prompt"),
    ],
)
def test_bad_lists(change: dict[str, Any], expected: str) -> None:
    read = to_rankings(load_table([LIST, {**LIST, **change}]), max_bad_fraction=1.0)
    assert read.dropped == {expected: 1}


def test_a_list_without_an_order_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"has prompt, completions, ranks; or prompt, completions, scores\. 'ranks' is mi"
    ):
        to_rankings(load_table([{"prompt": "p", "completions": ["a", "b"], "rating": [1, 2]}]))


def test_pairs_of_a_list_share_its_weight() -> None:
    found = pairs_of(ranking(2, 1, 2, weight=1.5, annotator="ann"))
    assert [(p.chosen.text, p.rejected.text, p.label, p.tie) for p in found] == [
        ("b", "a", 1.0, 0.0),
        ("b", "c", 1.0, 0.0),
        ("a", "c", 0.5, 1.0),
    ]
    assert {(p.weight, p.annotator) for p in found} == {(0.5, "ann")}


# All of it. ------------------------------------------------------------------------------------------------------


def test_pairs_and_lists_may_stand_in_one_table() -> None:
    rows = [{**ROW, "label": "tie", "annotator": "ann"}, {**LIST, "annotator": "bob"}]
    first, second = to_judgements(load_table(rows), LabelConfig()).items
    assert isinstance(first, Pair) and (first.tie, first.annotator) == (1.0, "ann")
    assert isinstance(second, Ranking) and (second.ranks, second.annotator) == ((2, 1, 3), "bob")
    for one in rows:
        (alone,) = to_judgements(load_table([one]), LabelConfig()).items
        assert type(alone) is (Ranking if "ranks" in one else Pair)


def test_judgements_know_the_strengths() -> None:
    rows = [{**ROW, "strength": "much"}, LIST]
    for some in (rows, rows[:1]):
        first = to_judgements(load_table(some), LabelConfig(strengths=STRENGTHS)).items[0]
        assert isinstance(first, Pair) and first.margin == 1.5


def test_judgements_count_what_is_bad() -> None:
    rows = [ROW, LIST, {**LIST, "ranks": [1]}, {**ROW, "chosen": ""}]
    read = to_judgements(load_table(rows), LabelConfig(), max_bad_fraction=0.5)
    assert read.summary() == "kept 2 of 4: 1 ranks is not a list with one number a completion, 1 empty completion"
    with pytest.raises(DataError, match="2 of 4 rows cannot be used"):
        to_judgements(load_table(rows), LabelConfig())


def test_ties_are_dropped_and_counted() -> None:
    judged = [pair(), pair(label=0.5, tie=1.0), pair(label=0.8, tie=0.25, weight=2.0), ranking(1, 1), ranking(1, 1, 2)]
    read = resolve_ties(judged, "drop")
    assert read.items == [pair(), pair(label=0.8, weight=1.5), ranking(1, 1, 2)]
    assert read.summary() == "kept 3 of 5: 2 ties"


def test_ties_are_half_a_preference_each_way() -> None:
    judged = [pair(), pair(label=0.5, tie=1.0), pair(label=0.8, tie=0.25, weight=2.0), ranking(1, 1)]
    read = resolve_ties(judged, "half")
    assert read.items == [pair(), pair(label=0.5), pair(label=pytest.approx(0.725), weight=2.0), ranking(1, 1)]
    assert not read.dropped


@pytest.mark.parametrize("how", ["rao_kupper", "davidson"])
def test_ties_stay_where_they_are_modelled(how: Any) -> None:
    judged = [pair(label=0.8, tie=0.25), ranking(1, 1)]
    assert resolve_ties(judged, how).items == judged


def test_annotators_are_weighed() -> None:
    judged = [pair(annotator="ann", weight=2.0), ranking(1, 2, annotator="bob"), pair(annotator="eve"), pair()]
    read = weigh_annotators(judged, {"ann": 0.5, "eve": 0.0})
    assert [one.weight for one in read.items] == [1.0, 1.0, 1.0]
    assert read.summary() == "kept 3 of 4: 1 of weight 0"
    with pytest.raises(DataError, match=r"names evee; annotators in the data: ann, bob, eve\. Did you mean 'eve'\?"):
        weigh_annotators(judged, {"evee": 0.5})
    with pytest.raises(DataError, match="annotators in the data: none; the column annotator is missing or empty"):
        weigh_annotators([pair()], {"ann": 0.5})


def test_strengths_of_lists_are_refused() -> None:
    table = load_table([{"prompt": "p", "completions": ["a", "b"], "ranks": [1, 2]}])
    with pytest.raises(DataError, match="ranked lists only, which have no strength"):
        to_judgements(table, LabelConfig(strengths={"much": 1.0}))


def test_numbers_may_name_annotators() -> None:
    """YAML reads `{0: 0.5}` with a number as the key."""
    pairs = [pair(), pair(annotator="0")]
    half: Any = {0: 0.5}
    assert [judged.weight for judged in weigh_annotators(pairs, half).items] == [1.0, 0.5]
    other: Any = {7: 1.0}
    with pytest.raises(DataError, match="names 7; annotators in the data: 0"):
        weigh_annotators(pairs, other)


def test_annotators_of_other_judgements_may_have_a_weight() -> None:
    assert len(weigh_annotators([pair(annotator="0")], {"7": 1.0}, others={"7"}).items) == 1


def test_strengths_of_stored_labels() -> None:
    """A strength without a margin is an error, as in a file; a label without a strength asks for none."""
    item = Item(prompt=Prompt(id="1", text="p"), first=Completion(text="a"), second=Completion(text="b"))

    def margin(strength: str, outcome: Any = "first") -> float:
        label = Label(id="1", item=item.id, annotator="ann", version=1, outcome=outcome, strength=strength)
        (made,) = comparisons.to_pairs([comparisons.Judgement(item, label)], STRENGTHS)
        return made.margin

    assert [margin("much"), margin(""), margin("much", "tie")] == [1.5, 0.0, 0.0]
    with pytest.raises(DataError, match=r"strength is 'muhc'; margins are given for slightly, much\."):
        margin("muhc")
