"""How annotators go about it, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from prefrl.data.comparisons import Label
from prefrl.errors import ConfigError
from prefrl.evaluate.behaviour import Thresholds, gold, shown, side_bias, speed, straight_lining, ties


def labels(person: str, outcomes: list[Any], **details: list[Any]) -> list[Label]:
    return [
        Label(
            id=f"{person}/{k}",
            item=str(k),
            annotator=person,
            version=1,
            outcome=outcome,
            details={name: values[k % len(values)] for name, values in details.items()},
        )
        for k, outcome in enumerate(outcomes)
    ]


@pytest.mark.parametrize(
    ("outcome", "exchanged", "seen"),
    [("first", False, "a"), ("second", False, "b"), ("first", True, "b"), ("second", True, "a"), ("tie", True, "tie")],
)
def test_what_was_shown(outcome: str, exchanged: bool, seen: str) -> None:
    assert shown(labels("ann", [outcome], exchanged=[exchanged])[0]) == seen


def test_side_bias_by_hand() -> None:
    """Nine of ten are A: p = 2 (10 + 1) / 1024; the exact interval of 9 in 10 is [0.555, 0.997]."""
    said = labels("ann", ["first"] * 5 + ["second"] * 5, exchanged=[False] * 4 + [True] * 6)  # 4 of 5 A, 5 of 5 A
    found = side_bias([*said, *labels("ann", ["tie", "skip"], exchanged=[True])])["ann"]
    assert (found.chosen_a, found.decided, found.rate) == (9, 10, 0.9)
    assert found.p_value == pytest.approx(22 / 1024)
    assert found.interval == pytest.approx((0.554984, 0.997471), abs=1e-6)
    assert not found.flagged
    assert side_bias(said, Thresholds(level=0.05))["ann"].flagged


def test_a_preferred_answer_is_no_side() -> None:
    """Always the first of the item, which is shown on either side in turn."""
    found = side_bias(labels("ann", ["first"] * 100, exchanged=[True, False]))["ann"]
    assert found.rate == 0.5 and found.p_value == pytest.approx(1.0) and not found.flagged


def test_labels_that_do_not_say_their_sides_are_left_out() -> None:
    assert side_bias(labels("ann", ["first"] * 50)) == {}


def test_many_people_share_the_level() -> None:
    """17 of 20 has p = .0026: remarkable of one person, not of the most extreme of fifty."""
    one = labels("ann", ["first"] * 17 + ["second"] * 3, exchanged=[False])
    others = [label for k in range(49) for label in labels(f"p{k}", ["first", "second"] * 10, exchanged=[False, False])]
    assert side_bias(one)["ann"].flagged and not side_bias([*one, *others])["ann"].flagged


def test_speed_by_hand() -> None:
    """The others' seconds are e^1, e^2, e^3 in turn: median 2, median deviation 1, so that 0.6745 is a unit of z."""
    times = [1000 * math.exp(k) for k in (1.0, 2.0, 3.0)]
    others = labels("bob", ["first"] * 30, active_ms=times)
    quick = labels("ann", ["first"] * 20, active_ms=[1000 * math.exp(-2.0)])
    found = speed([*others, *quick])
    assert found["ann"].z == pytest.approx(-4 * 0.6745)
    assert found["ann"].verdict == "fast" and found["ann"].median_seconds == pytest.approx(math.exp(-2.0))
    assert math.isnan(found["bob"].z) and found["bob"].verdict == ""  # beside one value only, nothing is far
    slow = speed([*others, *labels("cat", ["second"] * 20, active_ms=[1000 * math.exp(6.0)])])
    assert slow["cat"].verdict == "slow" and slow["cat"].z == pytest.approx(4 * 0.6745)


def test_labels_without_a_time_are_counted_and_in_no_figure() -> None:
    said = labels("ann", ["first", "second", "tie", "skip"], active_ms=[4000, None, 0, 9])
    found = speed([*said, *labels("bob", ["first"])])
    assert (found["ann"].timed, found["ann"].untimed, found["ann"].median_seconds) == (1, 2, pytest.approx(4.0))
    assert (found["bob"].timed, found["bob"].untimed) == (0, 1) and math.isnan(found["bob"].median_seconds)


def test_always_tie() -> None:
    found = ties([*labels("ann", ["tie", "both_bad"] * 15), *labels("bob", ["tie"] * 10 + ["first"] * 20)])
    assert (found["ann"].rate, found["ann"].verdict) == (1.0, "always_tie")
    assert (found["bob"].count, found["bob"].total, found["bob"].verdict) == (10, 30, "")
    assert ties(labels("ann", ["tie"] * 5))["ann"].verdict == ""  # five ties are no habit


def test_gold_by_hand() -> None:
    answers = {str(k): "first" for k in range(10)}
    said = [
        *labels("ann", ["first"] * 9 + ["second"]),
        *labels("bob", ["second"] * 8 + ["first", "skip", "first"]),
        *labels("cat", ["first"] * 4),
        *labels("dan", ["skip"] * 10),
    ]
    found = gold(said, answers)
    assert {name: (x.count, x.total, x.verdict) for name, x in found.items()} == {
        "ann": (9, 10, "pass"),
        "bob": (1, 9, "fail"),
        "cat": (4, 4, "too_few"),
    }
    assert found["ann"].interval == pytest.approx((0.554984, 0.997471), abs=1e-6)
    assert gold(said, answers, Thresholds(gold=0.95))["ann"].verdict == "unclear"
    assert gold(said, {}) == {}


def test_straight_lining_by_hand() -> None:
    """Twelve A in a row among twenty answers: at most 9 / 2^12."""
    said = labels("ann", ["first", "second"] * 4 + ["first"] * 12, exchanged=[False])
    found = straight_lining([*said, *labels("bob", ["first", "second"] * 10, exchanged=[False])])
    assert (found["ann"].answer, found["ann"].length) == ("a", 12)
    assert found["ann"].p_value == pytest.approx(9 / 4096) and found["ann"].flagged
    assert (found["bob"].length, found["bob"].flagged) == (1, False)


def test_the_same_answer_on_changing_sides_is_no_line() -> None:
    found = straight_lining(labels("ann", ["first"] * 40, exchanged=[True, False]))
    assert found["ann"].length == 1


def test_runs_of_an_answer_that_everybody_gives_are_none() -> None:
    said = [*labels("ann", ["right"] * 20), *labels("bob", ["right"] * 18 + ["wrong"] * 2)]
    found = straight_lining(said)
    assert found["ann"].p_value == pytest.approx(0.9**20) and not found["ann"].flagged


def test_thresholds_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"threshold gold is 70"):
        Thresholds(gold=70)
