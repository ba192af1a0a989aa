from __future__ import annotations

from typing import Any

import pytest

from prefrl.data.reading import Problem, Read, collect, keep_within
from prefrl.data.tables import Table
from prefrl.errors import ConfigError, DataError


def numbers(*values: int) -> Table:
    return Table([{"n": value} for value in values], ("n",), "numbers.jsonl")


def half(row: dict[str, Any]) -> int:
    if row["n"] < 0:
        raise Problem("negative")
    if row["n"] % 2:
        raise Problem("odd")
    return int(row["n"]) // 2


def test_bad_rows_are_counted_by_reason() -> None:
    read = collect(numbers(2, 3, 4, -1, 5, 6), half, 0.5)
    assert read.items == [1, 2, 3]
    assert read.dropped == {"odd": 2, "negative": 1}
    assert read.total == 6
    assert read.summary() == "kept 3 of 6: 2 odd, 1 negative"
    assert Read([1, 2]).summary() == "kept 2 of 2"


def test_too_many_bad_rows_name_the_first_of_each_reason() -> None:
    with pytest.raises(DataError) as error:
        collect(numbers(2, 3, 4, -1, 5, 6), half, 0.49)
    assert str(error.value) == (
        "numbers.jsonl: 3 of 6 rows cannot be used, at most 49% may be dropped: 2 odd (first: row 2), "
        "1 negative (first: row 4). Repair or remove them, or raise data.max_dropped_fraction."
    )


def test_the_threshold_itself_is_allowed() -> None:
    table = numbers(*[2] * 95, *[1] * 5)
    assert collect(table, half, 0.05).dropped == {"odd": 5}
    with pytest.raises(DataError, match="6 of 101 rows"):
        collect(numbers(*[2] * 95, *[1] * 6), half, 0.05)


def test_nothing_left_is_an_error_whatever_is_allowed() -> None:
    with pytest.raises(DataError, match=r"2 of 2 rows cannot be used.*Repair or remove them\.$"):
        collect(numbers(1, 3), half, 1.0)


def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        collect(numbers(1), lambda row: 1 // 0, 1.0)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_shares_are_checked(fraction: float) -> None:
    with pytest.raises(ConfigError, match="share between 0 and 1"):
        collect(numbers(2), half, fraction)
    with pytest.raises(ConfigError, match="max_dropped_fraction"):
        keep_within(["a"], [1], 5, "prompt", max_dropped_fraction=fraction)


def test_keep_within_drops_whole_items_and_counts_them() -> None:
    read = keep_within(["a", "b", "c", "d"], [5, 6, 4, 9], 5, "prompt", max_dropped_fraction=0.5)
    assert read.items == ["a", "c"]
    assert read.summary() == "kept 2 of 4: 2 prompt longer than 5 tokens"
    assert keep_within(["a"], [5], 5, "prompt").summary() == "kept 1 of 1"


def test_keep_within_refuses_by_default() -> None:
    with pytest.raises(DataError) as error:
        keep_within(["a", "b", "c"], [5, 6, 9], 5, "prompt")
    assert str(error.value) == (
        "2 of 3 are longer than the limit of 5 tokens for prompt, at most 0% may be dropped; the longest has "
        "9 (number 3). Raise the limit to 9, or shorten those rows; none of them is cut, a completion never is."
    )
    with pytest.raises(DataError, match="1 of 1"):
        keep_within(["a"], [6], 5, "prompt", max_dropped_fraction=1.0)
    with pytest.raises(ValueError, match="zip"):
        keep_within(["a"], [6, 7], 5, "prompt")
