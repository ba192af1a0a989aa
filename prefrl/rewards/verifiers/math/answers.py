"""What an answer can be: a value, words, a list or set, an interval, a relation, a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from prefrl.rewards.verifiers.math.parser import Tree
from prefrl.rewards.verifiers.math.units import Unit


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value.

    percent  `tree` is what stands before the sign
    other    the value where the unit is read as variables: `5 m` is five metres or 5 times m
    """

    tree: Tree
    percent: bool = False
    unit: Unit | None = None
    other: Tree | None = None


@dataclass(frozen=True, slots=True)
class Based:
    """Digits with the base they are written in, `1011_2`."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Words:
    """A text answer in its usual spelling."""

    text: str


@dataclass(frozen=True, slots=True)
class Raw:
    """What is not understood; it equals its like, letter by letter."""

    text: str


@dataclass(frozen=True, slots=True)
class Many:
    """Several answers: in a `set`, in a `tuple` with its brackets, in a `list` (1, 2), or `all` of them (1 and 2)."""

    items: tuple[Answer, ...]
    kind: str
    brackets: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """An interval; `closed` says which ends belong to it."""

    low: Tree
    high: Tree
    closed: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Union:
    """A union of intervals and sets."""

    parts: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """Sides and what stands between them: `=`, `<`, `<=`, `!=`; greater-than is turned round."""

    sides: tuple[Tree, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of answers."""

    rows: tuple[tuple[Answer, ...], ...]


Answer: TypeAlias = Scalar | Based | Words | Raw | Many | Span | Union | Relation | Matrix

NOTHING = "no solution"  # the spelling of an empty set in words
INFINITY: Tree = ("const", "inf")
MINUS_INFINITY: Tree = ("mul", ("num", -1), INFINITY)
REALS = Span(MINUS_INFINITY, INFINITY, (False, False))
EVERYTHING = "all real numbers"
NO_LIMIT = "does not exist"
UNBOUNDED = "infinity"
ENDLESS = "infinitely many"
PHRASES = (NOTHING, EVERYTHING, NO_LIMIT, UNBOUNDED, ENDLESS)  # text answers that have several spellings
