"""Figures of a reward on pairs, by hand, and the baselines it must beat."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from prefrl.errors import DataError
from prefrl.evaluate.baselines import length_baselines, text_baselines
from prefrl.evaluate.margins import calibration_bins, expected_calibration_error, sigmoid, softplus
from prefrl.evaluate.quality_sections import (
    accuracy_figure,
    calibration_figure,
    length_figure,
    margin_figure,
    quality_section,
    score_figure,
    subset_figure,
)
from prefrl.evaluate.reward_quality import evaluate_pairs, evaluate_scores
from prefrl.types import Completion, Pair, Prompt

LOG3 = math.log(3)  # sigmoid(log 3) = 3/4
TRAIN = [(f"question {i}", f"thank you kindly friend {i}", f"go away fool {i} now and never return") for i in range(12)]


def test_accuracy_is_strict_and_ties_are_shown() -> None:
    quality = evaluate_scores([1.0, 2.0, 0.0, 5.0], [0.0, 2.0, 1.0, -5.0])
    assert (quality.accuracy.correct, quality.accuracy.total, quality.ties) == (2, 4, 1)
    assert quality.accuracy.rate == 0.5
    assert quality.margin == pytest.approx((1 + 0 - 1 + 10) / 4)


def test_probabilistic_figures_by_hand() -> None:
    quality = evaluate_scores([LOG3] * 3 + [0.0], [0.0] * 3 + [LOG3])  # p = .75 three times, .25 once
    assert quality.nll == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)
    assert quality.brier == pytest.approx((3 * 0.25**2 + 0.75**2) / 4)
    assert [(b.predicted, b.observed, b.count) for b in quality.calibration] == [
        (pytest.approx(0.25), 0.25, 4),
        (pytest.approx(0.75), 0.75, 4),
    ]
    assert quality.ece == pytest.approx(0.0, abs=1e-12)
    overconfident = evaluate_scores([LOG3, 0.0], [0.0, LOG3])  # p = .75, right half of the time
    assert overconfident.ece == pytest.approx(0.25)


def test_guessing_costs_log_two_and_is_calibrated() -> None:
    quality = evaluate_scores([0.0, 0.0], [0.0, 0.0])
    assert quality.nll == pytest.approx(0.693147, abs=1e-6)
    assert quality.brier == 0.25 and quality.ece == 0.0


def test_swapping_a_pair_mirrors_the_calibration_curve() -> None:
    margins = [0.3, -1.2, 2.2, 0.9, -0.1]
    forward = calibration_bins(margins)
    assert sum(b.count for b in forward) == 10
    for low, high in zip(forward, reversed(forward), strict=True):
        assert low.predicted + high.predicted == pytest.approx(1.0)
        assert low.observed + high.observed == pytest.approx(1.0)
    assert expected_calibration_error(forward) > 0


def test_large_margins_do_not_overflow() -> None:
    assert softplus(1000.0) == 1000.0 and softplus(-1000.0) == 0.0
    assert sigmoid(1000.0) == 1.0 and sigmoid(-1000.0) == 0.0
    assert evaluate_scores([-2000.0], [0.0]).nll == 2000.0


def test_pairs_without_a_finite_score_are_counted_and_left_out() -> None:
    quality = evaluate_scores(
        [1.0, math.nan, 3.0], [0.0, 0.0, math.inf], chosen_lengths=[1, 1, 1], rejected_lengths=[2, 2, 2]
    )
    assert quality.unscored == 2 and quality.accuracy.total == 1
    assert [len(b.outcomes) for b in quality.baselines] == [1, 1]
    with pytest.raises(DataError, match="None of 1 pairs has two finite scores"):
        evaluate_scores([math.nan], [0.0])


def test_a_reward_that_is_the_length_is_told_apart() -> None:
    chosen, rejected = [10, 3, 8, 2], [5, 6, 4, 9]
    quality = evaluate_scores(chosen, rejected, chosen_lengths=chosen, rejected_lengths=rejected)
    assert quality.length is not None
    assert quality.length.pooled == pytest.approx(1.0) and quality.length.within == pytest.approx(1.0)
    assert (quality.length.longer.correct, quality.length.longer.total) == (2, 2)
    assert (quality.length.shorter.correct, quality.length.shorter.total) == (0, 2)


def test_within_pair_correlation_does_not_depend_on_which_side_is_chosen() -> None:
    a, b = [1.0, 4.0, 2.0], [3.0, 1.0, 2.5]
    one = evaluate_scores(a, b, chosen_lengths=[5, 9, 4], rejected_lengths=[6, 2, 4])
    other = evaluate_scores([3.0, 4.0, 2.0], [1.0, 1.0, 2.5], chosen_lengths=[6, 9, 4], rejected_lengths=[5, 2, 4])
    assert one.length is not None and other.length is not None
    assert one.length.within == pytest.approx(other.length.within)
    assert one.length.within == pytest.approx((2 + 21) / math.sqrt((4 + 9 + 0.25) * (1 + 49)))


def test_length_baselines_count_equal_lengths_half() -> None:
    longer, shorter = length_baselines([5, 1, 2, 9], [3, 2, 2, 8])
    assert longer.outcomes == (1.0, 0.0, 0.5, 1.0) and longer.accuracy == 0.625
    assert shorter.accuracy == 0.375


def test_words_are_learnt_and_swapping_flips_every_answer() -> None:
    evaluation = [("new", "thank you", "fool"), ("new", "kindly friend", "go away now")]
    words, both = text_baselines(TRAIN, evaluation)
    assert words.outcomes == (1.0, 1.0) and both.accuracy == 1.0
    swapped, _ = text_baselines(TRAIN, [(p, r, c) for p, c, r in evaluation])
    assert swapped.outcomes == (0.0, 0.0)


def test_words_alone_cannot_tell_what_they_never_saw_but_length_can() -> None:
    words, both = text_baselines(TRAIN, [("new", "ok", "a much longer text without any of those words")])
    assert words.outcomes == (0.5,) and both.outcomes == (1.0,)


def test_text_baselines_say_what_is_missing() -> None:
    with pytest.raises(DataError, match="Got 0 train and 1 evaluation"):
        text_baselines([], TRAIN[:1])
    with pytest.raises(DataError, match="hold no words"):
        text_baselines([("p", "!", "?")], TRAIN[:1])


def test_the_comparison_with_a_baseline_is_paired() -> None:
    quality = evaluate_scores([1.0] * 8, [0.0] * 8, chosen_lengths=[1] * 6 + [3] * 2, rejected_lengths=[2] * 8)
    test = quality.versus(quality.baselines[0])
    assert (test.wins, test.losses, test.ties) == (6, 0, 2)
    assert test.p_value == pytest.approx(2 / 64)


def test_equal_scores_are_half_right_in_the_comparison_as_they_are_for_a_baseline() -> None:
    """A reward of length alone is no worse than the baseline of length."""
    long, short = [5.0] * 4 + [3.0] * 8, [2.0] * 4 + [3.0] * 8
    quality = evaluate_scores(long, short, chosen_lengths=long, rejected_lengths=short)
    test = quality.versus(quality.baselines[0])
    assert (test.wins, test.losses, test.ties, test.p_value) == (0, 0, 12, 1.0)


def test_repeated_prompts_widen_the_interval() -> None:
    chosen = [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0] * 4
    alone = evaluate_scores(chosen, [0.0] * 32).accuracy.interval
    grouped = evaluate_scores(chosen, [0.0] * 32, groups=[i // 4 for i in range(32)]).accuracy.interval
    assert grouped[1] - grouped[0] > alone[1] - alone[0]


def test_table_and_dict_show_the_same_figures() -> None:
    quality = evaluate_scores([1.0, 2.0], [0.0, 3.0], chosen_lengths=[1, 4], rejected_lengths=[2, 3])
    out = io.StringIO()
    Console(file=out, width=120).print(quality.table())
    assert "accuracy" in out.getvalue() and "50.0%" in out.getvalue() and "longer wins" in out.getvalue()
    plain = quality.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["accuracy"] == 0.5 and plain["accuracy_counts"] == [1, 2]
    assert plain["baselines"]["longer wins"]["accuracy"] == 0.5
    assert evaluate_scores([1.0], [0.0]).to_dict()["length_pooled"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"chosen_scores": [1.0], "rejected_scores": []},
        {"chosen_scores": [1.0], "rejected_scores": [0.0], "groups": ["a", "b"]},
        {"chosen_scores": [1.0], "rejected_scores": [0.0], "chosen_lengths": [1]},
        {"chosen_scores": [1.0], "rejected_scores": [0.0], "baselines": length_baselines([1, 2], [2, 1])},
        {"chosen_scores": [], "rejected_scores": []},
    ],
)
def test_columns_that_do_not_match_are_refused(arguments: dict[str, list[float]]) -> None:
    with pytest.raises(DataError):
        evaluate_scores(**arguments)


def test_figures_are_drawn() -> None:
    quality = evaluate_scores([1.0, 2.0, 0.5], [0.0, 3.0, 0.1], chosen_lengths=[1, 4, 3], rejected_lengths=[2, 3, 3])
    curve = calibration_figure(quality).axes[0].lines[1]
    assert list(curve.get_xdata()) == pytest.approx([b.predicted for b in quality.calibration])
    assert [t.get_text() for t in accuracy_figure(quality).axes[0].get_yticklabels()] == [
        "this reward", "longer wins", "shorter wins",
    ]  # fmt: skip
    assert score_figure(quality).axes[0].get_xlabel() == "score"
    assert margin_figure(quality).axes[0].get_xlabel() == "score(chosen) - score(rejected)"
    assert quality.length is not None
    labels = [line.get_label() for line in length_figure(quality.length).axes[0].lines]
    assert [label for label in labels if "chosen" in label] == ["chosen is shorter", "chosen is longer"]


def test_calibration_before_and_after_are_two_curves() -> None:
    quality = evaluate_scores([2.0, 2.0, 2.0, 0.0], [0.0, 0.0, 0.0, 2.0])
    before = quality.at_temperature(1 / 4)  # margins four times as large
    assert before.nll > quality.nll and before.accuracy == quality.accuracy
    labels = [line.get_label() for line in calibration_figure(quality, before).axes[0].lines]
    assert labels == ["perfect", "before", "this reward"]
    assert quality.temperature == pytest.approx(2 / LOG3) and quality.scaled_nll < quality.nll
    assert quality.at_temperature(quality.temperature).nll == pytest.approx(quality.scaled_nll)


def pair(
    chosen: str, rejected: str, *, prompt: str = "p", label: float = 1.0, tie: float = 0.0, **columns: object
) -> Pair:
    return Pair(
        prompt=Prompt(id=prompt, text=prompt, columns=columns),
        chosen=Completion(text=chosen),
        rejected=Completion(text=rejected),
        label=label,
        tie=tie,
    )


def test_pairs_give_lengths_prompts_and_text_baselines() -> None:
    train = [pair(chosen, rejected, prompt=prompt) for prompt, chosen, rejected in TRAIN]
    held_out = [pair("thank you", "fool", prompt=f"q{i}") for i in range(4)]
    quality = evaluate_pairs([1.0] * 4, [0.0] * 4, held_out, train)
    assert [b.name for b in quality.baselines] == [
        "longer wins", "shorter wins", "words (TF-IDF)", "words and length",
    ]  # fmt: skip
    assert [b.accuracy for b in quality.baselines[:3]] == [1.0, 0.0, 1.0]
    assert len(evaluate_pairs([1.0] * 4, [0.0] * 4, held_out).baselines) == 2


def test_pairs_of_one_prompt_are_one_cluster() -> None:
    same = [pair("a", "bb") for _ in range(6)]
    apart = [pair("a", "bb", prompt=f"q{i}") for i in range(6)]
    scores = [1.0] * 6, [0.0] * 6
    assert evaluate_pairs(*scores, same).accuracy.interval[0] < evaluate_pairs(*scores, apart).accuracy.interval[0]


def test_labels_say_which_side_is_preferred() -> None:
    pairs = [pair("a", "bb"), pair("a", "bb", label=0.2), pair("a", "bb", label=0.5)]
    quality = evaluate_pairs([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], pairs)
    assert (quality.accuracy.correct, quality.accuracy.total, quality.undecided) == (1, 2, 1)
    assert quality.length is not None and quality.length.longer.total == 1
    with pytest.raises(DataError, match="2 and 1 scores of 1 pairs"):
        evaluate_pairs([1.0, 2.0], [0.0], pairs[:1])


def test_ties_stand_apart_from_every_other_figure() -> None:
    pairs = [pair("a", "bb"), pair("a", "bb", label=0.5, tie=1.0), pair("a", "bb", label=0.7, tie=0.6)]
    quality = evaluate_pairs([2.0, 0.1, math.nan], [0.0, 0.0, 0.0], pairs)
    assert (quality.accuracy.total, quality.undecided, quality.unscored) == (1, 2, 0)
    assert quality.tied is not None
    assert (quality.tied.close.correct, quality.tied.close.total, quality.tied.unscored) == (1, 1, 1)
    assert quality.tied.separation == 1.0  # |0.1| against |2|
    assert quality.to_dict()["tied"]["close_counts"] == [1, 1]
    assert [name for name, _, _ in quality.rows() if "tied" in name] == ["tied pairs that are close"]
    assert len(margin_figure(quality).axes[0].get_legend().get_texts()) == 2
    with pytest.raises(DataError, match="All of 1 pairs are ties"):
        evaluate_pairs([1.0], [0.0], [pair("a", "b", label=0.5)])


def test_subsets_have_figures_of_their_own() -> None:
    pairs = [pair("aa", "b", prompt=f"q{i}", source="abc"[i % 3], kind=i % 2) for i in range(9)]
    chosen = [math.nan if i % 3 == 2 else 1.0 if i % 3 == 0 else float(i == 1) for i in range(9)]
    quality = evaluate_pairs(chosen, [0.5] * 9, pairs)
    assert {name: (q.accuracy.correct, q.accuracy.total) for name, q in quality.subsets.items()} == {
        "a": (3, 3), "b": (1, 3),
    }  # fmt: skip
    assert dict(quality.unmeasured) == {"c": 3} and quality.unscored == 3
    assert quality.subsets["a"].exact == pytest.approx((0.025 ** (1 / 3), 1.0))
    assert [b.name for b in quality.subsets["a"].baselines] == ["longer wins", "shorter wins"]
    assert len(evaluate_pairs(chosen, [0.5] * 9, pairs, subset="kind").subsets) == 2
    plain = quality.to_dict(nested=True)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["subsets"]["b"]["accuracy_counts"] == [1, 3] and plain["unmeasured_subsets"] == {"c": 3}
    assert "subsets" not in quality.to_dict()
    assert [table.row_count for table in quality.tables()][1:] == [3, 6]
    assert len(subset_figure(quality).axes[0].patches) == 2
    assert len(quality_section(quality).blocks) == 9


def test_a_column_of_subsets_must_be_there_and_must_tell_subsets_apart() -> None:
    pairs = [pair("a", "b", prompt=f"q{i}", source=f"page {i}", subset=None) for i in range(60)]
    scores = [1.0] * 60, [0.0] * 60
    assert evaluate_pairs(*scores, pairs).subsets == {}  # a source a pair is no subset
    assert len(evaluate_pairs(*scores, pairs, subset="source").subsets) == 60  # unless it is asked for
    with pytest.raises(DataError, match=r"No pair has a column 'sorce'.*Did you mean 'source'"):
        evaluate_pairs(*scores, pairs, subset="sorce")


def test_text_baselines_are_fitted_once_and_split_by_subset() -> None:
    train = [pair(chosen, rejected, prompt=prompt) for prompt, chosen, rejected in TRAIN]
    held_out = [pair("thank you", "fool", prompt=f"q{i}", subset=i % 2) for i in range(4)]
    quality = evaluate_pairs([1.0] * 4, [0.0] * 4, held_out, train)
    assert [(b.name, len(b.outcomes)) for b in quality.subsets["0"].baselines][2:] == [
        ("words (TF-IDF)", 2), ("words and length", 2),
    ]  # fmt: skip


def test_agreement_of_people_stands_in_the_table() -> None:
    pairs = [pair("a", "b", prompt=f"q{i}", votes=[1, 1, 2]) for i in range(3)]
    quality = evaluate_pairs([1.0] * 3, [0.0] * 3, pairs)
    assert quality.agreement is not None and quality.agreement.best == pytest.approx(2 / 3)
    assert quality.to_dict()["agreement"]["votes"] == 9
    assert any(name == "Krippendorff's alpha" for name, _, _ in quality.rows())
