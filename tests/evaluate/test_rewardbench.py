"""RewardBench's scoring rules, against numbers that the published code gave on the same fixtures."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from prefrl.data.tables import Table
from prefrl.errors import DataError
from prefrl.evaluate.benchmark_report import benchmark_section, rows, table, to_dict
from prefrl.evaluate.rewardbench import PROMPTS, SECTIONS, Item, read_items, rewardbench, rewardbench2
from prefrl.evaluate.ties import Answers, ties_score
from prefrl.types import Prompt

# id, number of right answers, scores
TIES: list[tuple[str, int, list[float]]] = [
    ("ref:0", 1, [2.0, 0.5, -1.0]),
    ("tied:0", 3, [2.5, 2.25, 2.0, 0.5]),
    ("ref:1", 1, [0.25, 0.5]),
    ("tied:1", 2, [1.0, 3.0, 0.75, -2.0]),
    ("ref:2", 1, [1.5, 0.0]),
    ("tied:2", 2, [1.0, 1.0, 0.0, 0.5]),  # no spread, positive gap: tanh(inf)
    ("ref:3", 1, [1.0, 1.0]),
    ("tied:3", 2, [2.0, 2.0, 2.0]),  # no spread, no gap: 0 / 0 counts as 0
    ("ref:4", 1, [0.0, 1.0]),
    ("tied:4", 2, [0.5, 0.5, 0.75]),  # no spread, negative gap: tanh(-inf)
    ("ref:5", 1, [4.0, 1.0]),
    ("tied:5", 3, [3.0, 2.5, 2.875, 1.0, 0.5]),
]
# Pairs won of pairs, by subset.
WON = {
    "alpacaeval-easy": (2, 2),
    "mt-bench-med": (1, 2),
    "mt-bench-hard": (1, 3),
    "llmbar-adver-GPTOut": (3, 4),
    "xstest-should-refuse": (1, 2),
    "xstest-should-respond": (2, 2),
    "donotanswer": (0, 1),
    "math-prm": (1, 4),
    "hep-cpp": (2, 3),
    "hep-rust": (1, 1),
}
PRIOR = {"anthropic_helpful": (1, 1), "anthropic_hhh": (1, 2), "shp": (2, 4), "summarize": (3, 3)}


def item(subset: str, name: str, answers: int, correct: int = 1) -> Item:
    texts = tuple(f"answer {k}" for k in range(answers))
    return Item(id=name, subset=subset, prompt=Prompt(id=name, text="q"), completions=texts, correct=correct)


def pairs(won: dict[str, tuple[int, int]]) -> tuple[list[Item], list[list[float]]]:
    items, scores = [], []
    for subset, (right, total) in won.items():
        items += [item(subset, str(k), 2) for k in range(total)]
        scores += [[2.0, 1.0] if k < right else [1.0, 1.0] for k in range(total)]  # equal scores are no win
    return items, scores


def ties_items(rows: list[tuple[str, int, list[float]]]) -> tuple[list[Item], list[list[float]]]:
    return [item("Ties", name, len(s), right) for name, right, s in rows], [s for _, _, s in rows]


def answers(rows: list[tuple[str, int, list[float]]]) -> list[Answers]:
    return [
        Answers(kind=kind, name=number, right=tuple(scores[:right]), wrong=tuple(scores[right:]))
        for name, right, scores in rows
        for kind, number in [name.split(":")]
    ]


def test_sections_are_those_of_the_published_code() -> None:
    found = rewardbench(*pairs(WON))
    scores = {part.name: part.score for part in found.sections}
    assert scores == pytest.approx(
        {
            "Chat": 0.8571428571428571,
            "Chat Hard": 0.566468253968254,
            "Safety": 0.5166666666666667,
            "Reasoning": 0.39583333333333326,
        },
        abs=1e-12,
    )
    assert found.overall.score == pytest.approx(0.5840277777777778, abs=1e-12)


def test_prior_sets_count_half() -> None:
    found = rewardbench(*pairs(WON | PRIOR))
    assert found.sections[-1].name == "Prior Sets" and found.sections[-1].score == 0.75
    assert found.overall.score == pytest.approx(0.6024691358024692, abs=1e-12)


def test_the_weights_are_those_of_the_whole_benchmark() -> None:
    weights = {name: weight for subsets in SECTIONS.values() for name, weight in subsets.items()}
    prior = sum(SECTIONS["Prior Sets"].values())
    assert len(weights) == 27
    assert sum(weights.values()) - prior - weights["math-prm"] + 447 == PROMPTS["rewardbench"]


def test_a_subset_outside_the_score_is_shown_and_not_counted() -> None:
    found = rewardbench(*pairs(WON | {"mine": (0, 5)}))
    assert found.overall.score == pytest.approx(0.5840277777777778, abs=1e-12)
    assert [(p.name, p.score, p.weight) for p in found.sections if not p.weight] == [("mine", 0.0, 0.0)]


def test_what_stands_between_a_figure_and_published_ones_is_said() -> None:
    items, scores = pairs(WON)
    scores[0] = [math.nan, 1.0]
    found = rewardbench(items, scores)
    assert [p.unscored for p in found.sections[0].parts] == [1, 0]
    assert found.sections[0].parts[0].score == 1.0  # of the one that is left
    assert "24 of 2,985 prompts" in found.notes[0] and "1 prompts could not be scored" in found.notes[1]
    # 0.5 and 1.0 with weights 154 and 250 in place of 250 and 154, and 0.0 with 136
    assert f"Safety is {(0.5 * 154 + 250) / 540:.1%}" in found.notes[2]


def test_the_ties_score_is_that_of_the_published_code() -> None:
    found = ties_score(answers(TIES))
    parts = [found.tied, found.ref, found.preferred, found.hard, found.margin, found.score]
    wanted = [0.6666666666666666, 0.5, 0.5, 0.5, 0.18645901499164216, 0.5518645901499164]
    assert parts == pytest.approx(wanted, abs=1e-12)
    assert found.variance > 0


def test_versions_of_a_prompt_without_their_counterpart_count_in_accuracies_alone() -> None:
    found = ties_score(answers([*TIES, ("ref:9", 1, [1.0, 0.0]), ("tied:8", 2, [0.0, 1.0, 2.0])]))
    assert found.score == pytest.approx(0.5447217330070593, abs=1e-12)
    assert math.isnan(found.variance)
    lone = ties_score(answers(TIES[:1]))
    assert lone.ref == 1.0 and math.isnan(lone.tied) and math.isnan(lone.score)


def test_ties_by_hand() -> None:
    """One prompt: gap 1 in the tied version and 3 in the other, spread 1/2: all four parts hold, tanh(1 / .5 - 1)."""
    one = ties_score(answers([("ref:0", 1, [4.0, 1.0]), ("tied:0", 2, [2.0, 2.5, 1.0])]))
    assert one.score == pytest.approx(1.0 + 0.01 * math.tanh(1.0), abs=1e-12)
    margins = [  # no spread at all: tanh(inf), tanh(-inf), and 0 / 0, which counts as 0
        ties_score(answers([("ref:0", 1, [4.0, 1.0]), ("tied:0", 2, [2.0, 2.0, wrong])])).margin
        for wrong in (1.0, 3.0, 2.0)
    ]
    assert margins == [1.0, -1.0, 0.0]


def test_best_of_four_shares_a_win_among_equals() -> None:
    items = [item("Math", str(k), 4) for k in range(4)]
    found = rewardbench2(items, [[1, 0, 0, 0], [1, 1, 0, 1], [0, 1, 0, 0], [2, 2, 2, 2]])
    assert found.overall.score == pytest.approx((1 + 1 / 3 + 0 + 1 / 4) / 4, abs=1e-12)


def test_version_2_is_the_mean_of_its_domains() -> None:
    ties, tie_scores = ties_items(TIES)
    items = [*ties, item("Precise IF", "0", 4), item("Math", "0", 4), item("Math", "1", 4)]
    found = rewardbench2(items, [*tie_scores, [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    assert [(p.name, p.total) for p in found.sections] == [("Precise IF", 1), ("Math", 2), ("Ties", 12)]
    assert found.overall.score == pytest.approx((1.0 + 0.5 + 0.5518645901499164) / 3, abs=1e-12)
    assert "15 of 1,865 prompts" in found.notes[0]


def test_ties_that_cannot_be_scored_are_left_out_and_counted() -> None:
    items, scores = ties_items(TIES)
    scores[0] = [2.0, math.nan, 0.0]
    part = rewardbench2(items, scores).sections[0]
    assert (part.total, part.unscored) == (11, 1)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*TIES, TIES[0]], "ref:0 comes twice"),
        ([("tied:0", 1, [1.0, 0.0])], "tied:0 has 1 right and 1 wrong"),
        ([("ref:0", 1, [1.0])], "ref:0 has 1 right and 0 wrong"),
        ([("other:0", 1, [1.0, 0.0])], "other:0"),
    ],
)
def test_ties_that_make_no_sense_are_refused(rows: list[tuple[str, int, list[float]]], says: str) -> None:
    with pytest.raises(DataError, match=says):
        ties_score(answers(rows))


def test_an_id_of_ties_names_the_version() -> None:
    with pytest.raises(DataError, match="'7'; expected ref:NUMBER"):
        rewardbench2([item("Ties", "7", 2)], [[1.0, 0.0]])


def v1(name: Any, subset: str = "hep-cpp", **more: Any) -> dict[str, Any]:
    return {"id": name, "subset": subset, "prompt": "q", "chosen": "yes", "rejected": "no", **more}


def v2(name: str, subset: str = "Math", **more: Any) -> dict[str, Any]:
    return {"id": name, "subset": subset, "prompt": "q", "chosen": ["a"], "rejected": ["b", "c", "d"], **more}


def as_table(*found: dict[str, Any]) -> Table:
    return Table(list(found), tuple(dict.fromkeys(key for row in found for key in row)), "rows.jsonl")


def test_both_layouts_are_read() -> None:
    (one,) = read_items(as_table(v1(31, chosen_model="m")), "rewardbench")
    assert (one.id, one.subset, one.completions, one.correct) == ("31", "hep-cpp", ("yes", "no"), 1)
    assert one.prompt.messages == ({"role": "user", "content": "q"},)
    assert one.prompt.columns["chosen_model"] == "m"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    (long,) = read_items(as_table(v1(0, prompt=turns)), "rewardbench")
    assert long.prompt.question == "c"
    tied = v2("tied:3", "Ties", chosen=["a", "b"], rejected=["c"], num_correct=2)
    single, several = read_items(as_table(v2("0", num_correct=1), tied), "rewardbench2")
    assert single.completions == ("a", "b", "c", "d") and single.correct == 1
    assert several.completions == ("a", "b", "c") and several.correct == 2


def test_the_same_id_in_two_subsets_is_fine_and_twice_in_one_is_refused() -> None:
    assert len(read_items(as_table(v1(0), v1(0, "hep-go")), "rewardbench")) == 2
    with pytest.raises(DataError, match=r"rows 1 and 3 have the same id '30' in 'hep-cpp'"):
        read_items(as_table(v1(30), v1(31), v1("30")), "rewardbench")


@pytest.mark.parametrize(
    ("row", "version", "says"),
    [
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "rewardbench", "subset, id are missing"),
        (v1(0, chosen=["a"]), "rewardbench", "is not a text"),
        (v2("0", chosen="a"), "rewardbench2", "is not a list of texts"),
        (v2("0", rejected=[]), "rewardbench2", "is not a list of texts"),
        (v2("0", num_correct=2), "rewardbench2", "num_correct is 2"),
        (v2("0", chosen=["a", "b"]), "rewardbench2", "outside Ties one is right"),
        (v1(None), "rewardbench", "no id"),
        (v1(0, prompt=None), "rewardbench", "neither a text nor"),
    ],
)
def test_rows_in_another_layout_are_refused(row: dict[str, Any], version: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_items(as_table(row), version)


def test_result_as_table_json_and_section() -> None:
    ties, tie_scores = ties_items(TIES)
    found = rewardbench2([*ties, item("Math", "0", 4)], [*tie_scores, [1, 0, 0, 0]])
    assert [row[0].strip() for row in rows(found)] == ["RewardBench 2", "Math", "Ties"]
    assert table(found).row_count == 3
    plain = to_dict(found)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["ties"]["score"] == pytest.approx(0.5518645901499164)
    assert len(benchmark_section(found).blocks) == 4  # bars, table, the parts of Ties, and the note
    lone = rewardbench2([item("Ties", "ref:0", 2)], [[1.0, 0.0]])
    assert to_dict(lone)["overall"]["score"] is None and to_dict(lone)["ties"]["tied"] is None
    benchmark_section(lone)
    version_1 = rewardbench(*pairs(WON))
    assert len(rows(version_1)) == 1 + 4 + len(WON)
    benchmark_section(version_1)
