"""What a reward has to do with length, by hand."""

from __future__ import annotations

import json
import math

import pytest

from prefrl.evaluate.length_report import LengthReport, length_report


def report(pairs: list[tuple[float, float, float, float]], groups: list[int] | None = None) -> LengthReport:
    """Pairs of (score, score, length, length), chosen first."""
    chosen, rejected, longs, shorts = (list(column) for column in zip(*pairs, strict=True))
    return length_report(chosen, rejected, longs, shorts, groups or list(range(len(pairs))))


def test_pairs_fall_into_strata_by_the_ratio_of_their_lengths() -> None:
    pairs = [
        (1.0, 0.0, 110, 100),  # ratio 1.1: the end belongs to the stratum
        (0.0, 1.0, 100, 111),
        (1.0, 0.0, 200, 100),
        (1.0, 0.0, 201, 100),
        (1.0, 0.0, 5, 0),  # against nothing
        (0.0, 0.0, 7, 7),
    ]
    found = report(pairs)
    counts = {s.name: (s.shorter.total, s.longer.total) for s in found.strata}
    assert list(counts) == ["1 to 1.1", "1.1 to 1.25", "1.25 to 1.5", "1.5 to 2", "over 2"]
    assert list(counts.values()) == [(0, 1), (1, 0), (0, 0), (0, 1), (0, 2)]
    assert (found.equal.correct, found.equal.total) == (0, 1)
    assert (found.shorter.total, found.longer.total) == (1, 4)


def test_balanced_accuracy_by_hand() -> None:
    """Stratum 1 to 1.1: shorter 1 of 1, longer 1 of 3. Over 2: shorter 0 of 2, longer 2 of 2. The rest is one-sided."""
    pairs = [
        (1.0, 0.0, 100, 105),
        *[(1.0, 0.0, 105, 100), (0.0, 1.0, 105, 100), (0.0, 1.0, 105, 100)],
        *[(0.0, 1.0, 10, 100)] * 2,
        *[(1.0, 0.0, 100, 10)] * 2,
        *[(1.0, 0.0, 140, 100)] * 5,
    ]
    found = report(pairs)
    assert [s.balanced for s in found.strata if s.shorter.total and s.longer.total] == pytest.approx([2 / 3, 1 / 2])
    assert found.balanced == pytest.approx((4 * 2 / 3 + 4 * 1 / 2) / 8)
    assert found.covered == 8
    assert 0.0 < found.interval[0] < found.balanced < found.interval[1] < 1.0


def test_a_reward_of_length_alone_is_at_one_half_however_often_longer_wins() -> None:
    lengths = [(150 + k, 100) for k in range(30)] + [(100, 150 + k) for k in range(10)]
    found = report([(float(a), float(b), a, b) for a, b in lengths])
    assert (found.longer.rate, found.shorter.rate) == (1.0, 0.0)
    assert found.balanced == 0.5
    assert found.interval[0] < 0.5 < found.interval[1]  # not a point, though no cell varies


def test_repeated_prompts_widen_the_interval() -> None:
    pairs = [(float(k % 4 < 2), 0.5, 100, 120 if k % 8 < 4 else 90) for k in range(64)]
    alone, grouped = report(pairs), report(pairs, [k % 4 for k in range(64)])
    assert alone.balanced == grouped.balanced
    assert grouped.interval[1] - grouped.interval[0] > alone.interval[1] - alone.interval[0]


def test_without_pairs_of_unequal_length_nothing_is_balanced() -> None:
    found = report([(1.0, 0.0, 5, 5)])
    assert math.isnan(found.balanced) and found.covered == 0
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["length_balanced"] is None and plain["length_balanced_interval"] is None
    assert plain["equal_length_counts"] == [1, 1]
    assert [row[4] for row in found.stratum_rows()] == ["100.0% of 1", *["no pairs"] * 5]
    assert found.rows()[2][:2] == ("length-balanced", "no pairs")
