"""Equality of what was returned and what was expected."""

from __future__ import annotations

import math
from typing import Any

import pytest

from prefrl.sandbox import Opaque
from prefrl.sandbox.compare import Same

THING = Opaque(1, "Yes")


@pytest.mark.parametrize(
    ("got", "expected", "json", "exact", "python"),
    [
        (1, 1, True, True, True),
        (1, 1.0, True, False, True),
        (True, 1, False, False, True),
        (1, True, False, False, True),
        (False, 0.0, False, False, True),
        ("1", 1, False, False, False),
        (None, False, False, False, False),
        ((1, 2), [1, 2], True, False, False),
        ([1, (2,)], [1, [2]], True, False, False),
        ([True], [1], False, False, True),
        ([1, 2], [2, 1], False, False, False),
        ([1], [1, 1], False, False, False),
        ({1: 2}, {"1": 2}, True, False, False),
        ({1: True}, {1: 1}, False, False, True),
        ({1: 2}, {True: 2}, False, False, True),
        ({"a": 1}, {"a": 1, "b": 2}, False, False, False),
        ({1, 2}, {2, 1}, True, True, True),
        ({1}, frozenset({1}), True, False, True),
        ({1}, {True}, False, False, True),
        ({1, 2}, [1, 2], False, False, False),
        (b"a", "a", False, False, False),
        ("a", "a", True, True, True),
        (math.nan, math.nan, True, True, True),
        ([math.nan], [math.nan], True, True, True),
        ({math.nan}, {math.nan}, True, True, True),
        (math.nan, 1.0, False, False, False),
        (math.inf, math.inf, True, True, True),
        (math.inf, -math.inf, False, False, False),
        (0.1 + 0.2, 0.3, False, False, False),
        (10**400, 1e308, False, False, False),
        (10**400, 10**400, True, True, True),
        (1 + 2j, 1 + 2j, True, True, True),
        (THING, THING, False, False, False),
        (THING, 1, False, False, False),
        ([THING], [1], False, False, False),
        ({1: THING}, {1: 1}, False, False, False),
    ],
    ids=repr,
)
def test_rules(got: Any, expected: Any, json: bool, exact: bool, python: bool) -> None:
    assert [Same(rule)(got, expected) for rule in ("json", "exact", "python")] == [json, exact, python]


def test_tolerance_is_declared_and_for_floats_alone() -> None:
    near = Same(rtol=1e-3)
    assert near(1000.5, 1000.0) and near([1000.5], [1000]) and near({1000.5}, {1000.0})
    assert not near(1001, 1000) and not near(1002.0, 1000.0) and not near(math.nan, 1000.0)
    assert Same(atol=0.01)(0.005, 0.0) and not Same(rtol=0.01)(0.005, 0.0)


def test_large_sets_take_no_time_in_the_square() -> None:
    """Two sets of 30,000: a comparison of all pairs would take minutes."""
    assert Same()({*range(30_000)}, {*range(30_000)})
    assert not Same(rtol=1e-9)({*range(30_000)}, {*range(1, 30_001)})
