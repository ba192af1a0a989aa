"""What crosses the wall, exactly, and what is refused."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, namedtuple
from enum import IntEnum
from typing import Any

import pytest

from prefrl.sandbox.inside.values import Opaque, ValueFault, decode, encode, read_line, write_line

Point = namedtuple("Point", "x y")


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -7, 10**500, 1 << 5000, -(1 << 5000), 0.1, -0.0, 1e308, "",
        "a\nb\u2028\ud800", b"\x00\xff",
        1 + 2j, [], [1, [2, (3,)]], (), (1,), {1, 2}, frozenset({"a"}), {}, {1: "a", (1, 2): [3], None: {4}},
        {"tuple": [1]},
    ],
    ids=repr,
)  # fmt: skip
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    back = decode(read_line(write_line(encode(value))))
    assert back == value and type(back) is type(value)
    assert math.copysign(1, back) == math.copysign(1, value) if isinstance(value, float) else True


def test_what_is_not_finite_has_a_form_of_its_own() -> None:
    assert encode([math.nan, math.inf, -math.inf]) == [{"float": "nan"}, {"float": "inf"}, {"float": "-inf"}]
    back = decode(encode([math.nan, math.inf]))
    assert back[0] != back[0] and back[1] == math.inf


def test_subclasses_become_their_base() -> None:
    assert [encode(Colour.RED), encode(Point(1, 2)), encode(Counter("aa")), encode(OrderedDict(a=1))] == [
        1, {"tuple": [1, 2]}, {"dict": [["a", 2]]}, {"dict": [["a", 1]]},
    ]  # fmt: skip
    assert type(encode(Colour.RED)) is int


def test_other_objects_are_kept_by_number_or_refused() -> None:
    kept: list[Any] = []
    thing = object()
    data = encode([thing], lambda value: kept.append(value) or 41)
    assert data == [{"object": [41, "object"]}] and kept == [thing]
    opaque = decode(data)[0]
    assert (opaque.number, opaque.type) == (41, "object") and opaque != Opaque(41, "object")
    with pytest.raises(ValueFault, match="object, which is no plain data"):
        encode(thing)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"nonsense", b"[" * 200_000, b'{"a":' * 100_000, b"NaN", b"[Infinity]", b"1" * 5000, b"\xff\xfe",
        b'{"tuple":[1],"tuple":[2]}',
    ],
    ids=range(9),
)  # fmt: skip
def test_lines_that_are_refused(line: bytes) -> None:
    with pytest.raises(ValueFault):
        read_line(line)


@pytest.mark.parametrize(
    "data",
    [
        {}, {"a": 1, "b": 2}, {"pickle": "x"}, {"set": [[1]]}, {"dict": [[1]]}, {"int": 5}, {"int": "zz"},
        {"bytes": "g"},
        {"complex": []}, {"object": ["a", "b"]}, {"tuple": 3}, {"float": "x"}, {"dict": [[{"set": [1]}, 2]]},
        {"list": [1]},
    ],
    ids=str,
)  # fmt: skip
def test_data_that_nobody_writes_is_refused(data: Any) -> None:
    with pytest.raises(ValueFault):
        decode(data)


def test_depth_is_bounded_on_both_sides() -> None:
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    for turn in (encode, decode):
        with pytest.raises(ValueFault, match="levels"):
            turn(deep)
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(ValueFault, match="levels"):
        encode(cyclic)


def test_keys_of_one_hash_are_refused_before_they_cost_time() -> None:
    """Multiples of 2**61 - 1 all have the hash 0: a set of 50,000 would compare a billion pairs."""
    colliding = [n * (2**61 - 1) for n in range(50_000)]
    for data in ({"set": colliding}, {"dict": [[n, 1] for n in colliding]}):
        with pytest.raises(ValueFault, match="one hash"):
            decode(data)
    assert len(decode({"set": list(range(50_000))})) == 50_000
