"""Whether two answers are the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from prefrl.rewards.verifiers.math.answers import (
    INFINITY,
    MINUS_INFINITY,
    NOTHING,
    Answer,
    Based,
    Many,
    Matrix,
    Raw,
    Relation,
    Scalar,
    Span,
    Union,
    Words,
)
from prefrl.rewards.verifiers.math.exact import HEAVY, LIGHT, approximate, rational
from prefrl.rewards.verifiers.math.parser import Tree, names, negated, number
from prefrl.rewards.verifiers.math.reading import as_span
from prefrl.rewards.verifiers.math.tokens import Hostile

MANY = 60  # the longest lists that are matched regardless of order


class Undecided(Exception):
    """It takes a worker to tell."""


class Oracle(Protocol):
    """What decides about expressions that are not plainly rational."""

    def same(self, a: Tree, b: Tree) -> bool:
        """Whether two expressions have the same value, for all values of their variables."""
        ...

    def proportional(self, a: Tree, b: Tree, *, positive: bool) -> bool:
        """Whether `a = c * b` with a constant c that is not 0; that is positive, where asked."""
        ...


class _NoOracle:
    """Decides nothing."""

    def same(self, a: Tree, b: Tree) -> bool:
        raise Undecided

    def proportional(self, a: Tree, b: Tree, *, positive: bool) -> bool:
        raise Undecided


@dataclass(frozen=True, slots=True)
class Rules:
    """How equal answers must be: tolerances, relative to the larger one and absolute; whether `1, 2` is in order."""

    rel_tol: float = 0.0
    abs_tol: float = 0.0
    ordered: bool = True


class Comparison:
    """Compares answers under rules; the gold one comes first.

    Args:
        rules: tolerances and order.
        oracle: for expressions; without one, `Undecided` is raised where one is needed.
    """

    def __init__(self, rules: Rules, oracle: Oracle | None = None) -> None:
        self.rules, self.oracle = rules, oracle or _NoOracle()
        self.limits = LIGHT if oracle is None else HEAVY

    def equal(self, gold: Answer, answer: Answer) -> bool:
        """Whether the answer is the gold one.

        Raises:
            Hostile: a value that is refused; Undecided, without an oracle, instead.
            ZeroDivisionError: one of them divides by zero.
        """
        if gold == answer:
            return True
        gold, answer = _plain(gold), _plain(answer)
        if isinstance(gold, Raw) or isinstance(answer, Raw):
            return gold == answer
        for kinds, compare in _BY_KIND:
            for a, b in ((gold, answer), (answer, gold)):
                if isinstance(a, kinds[0]) and isinstance(b, kinds[1]):
                    return compare(self, a, b)
        return False

    # Values

    def scalars(self, gold: Scalar, answer: Scalar) -> bool:
        """Two values with percent signs and units; a unit or percent sign that one of them lacks is taken as meant."""
        if gold.percent != answer.percent:
            return self._percent(gold, answer)
        if gold.unit is not None and answer.unit is not None:
            if gold.unit.dimension == answer.unit.dimension:
                return self.values(_sized(gold), _sized(answer))
            return _angles(gold, answer) and self.values(_radians(gold), _radians(answer))
        if self.values(gold.tree, answer.tree):
            return True
        if {"deg"} & {base for s in (gold, answer) if s.unit for base, _ in s.unit.dimension}:
            return self.values(_radians(gold), _radians(answer))
        readings = [(g, a) for g in (gold.tree, gold.other) for a in (answer.tree, answer.other) if g and a]
        return any(self.values(g, a) for g, a in readings[1:])

    def _percent(self, gold: Scalar, answer: Scalar) -> bool:
        share, bare = (gold, answer) if gold.percent else (answer, gold)
        scaled: Tree = ("mul", share.tree, ("num", Fraction(1, 100)))
        if self.values(*((scaled, bare.tree) if gold.percent else (bare.tree, scaled))):
            return True
        size = approximate(bare.tree)
        return size is not None and abs(size) > 1 and self.values(gold.tree, answer.tree)

    def values(self, gold: Tree, answer: Tree) -> bool:
        """Two expressions, within the tolerances."""
        if gold == answer:
            return True
        infinite = _infinite(gold), _infinite(answer)
        if any(infinite):
            return infinite[0] == infinite[1]
        a, b = self._rational(gold), self._rational(answer)
        if a is not None and b is not None:
            return a == b or self._close(a, b)
        if names(gold) != names(answer):
            return False
        if not names(gold):
            x, y = approximate(gold), approximate(answer)
            if x is not None and y is not None:
                if self._close(x, y):
                    return True
                if max(abs(x), abs(y)) > 1e-3 and abs(x - y) > 1e-3 * max(abs(x), abs(y)):
                    return False
        return self.oracle.same(gold, answer)

    def _rational(self, tree: Tree) -> Fraction | None:
        try:
            return rational(tree, self.limits)
        except Hostile:
            if self.limits is HEAVY:
                raise
            raise Undecided from None

    def _close(self, a: Any, b: Any) -> bool:
        rel, abs_ = self.rules.rel_tol, self.rules.abs_tol
        if not (rel or abs_):
            return False
        if isinstance(a, Fraction):
            return bool(abs(a - b) <= max(Fraction(str(rel)) * max(abs(a), abs(b)), Fraction(str(abs_))))
        return bool(abs(a - b) <= max(rel * max(abs(a), abs(b)), abs_))

    def based(self, a: Based, b: Based) -> bool:
        """Digits in the same base, or of the same value in two."""
        try:
            return int(a.digits, a.base) == int(b.digits, b.base)
        except ValueError:
            return a == b

    def based_bare(self, a: Based, b: Scalar) -> bool:
        """Digits whose base one of the two leaves out."""
        return a.digits.isdigit() and b.tree == number(int(a.digits))

    # Lists

    def many(self, gold: Many, answer: Many) -> bool:
        """Two lists, sets, tuples or sets of equations."""
        gold, answer = self._valued(gold), self._valued(answer)
        kinds = {gold.kind, answer.kind}
        if kinds == {"tuple", "set"} or ("ratio" in kinds and len(kinds) > 1):
            return False
        brackets = {pair.brackets for pair in (gold, answer) if pair.kind == "tuple"}
        if len(gold.items) == 2 and len(brackets) == 2:
            return False
        if "tuple" in kinds and len(kinds) > 1 and "[]" in brackets:
            return False
        if "set" in kinds:
            return self._matched(self._distinct(gold.items), self._distinct(answer.items))
        if "tuple" not in kinds and ("all" in kinds or self._unordered(gold, answer)):
            return self._matched(gold.items, answer.items)
        return len(gold.items) == len(answer.items) and all(map(self.equal, gold.items, answer.items))

    def _unordered(self, gold: Many, answer: Many) -> bool:
        """Plain lists, where order is declared not to matter, and lists of points or equations, where it never does."""
        if {gold.kind, answer.kind} != {"list"}:
            return False
        return not self.rules.ordered or all(not isinstance(item, Scalar | Words) for item in gold.items + answer.items)

    def _valued(self, several: Many) -> Many:
        """`x = 1, x = 2` as the values 1 and 2; `x = 1, y = 2` stays."""
        sides = [_assigned(item) for item in several.items]
        named = {side[0] for side in sides if side}
        if None in sides or len(named) != 1 or len(sides) < 2:
            return several
        return Many(tuple(Scalar(side[1]) for side in sides if side), "all")

    def _distinct(self, items: tuple[Answer, ...]) -> tuple[Answer, ...]:
        kept: list[Answer] = []
        for item in items[: MANY + 1]:
            if not any(self.equal(item, other) for other in kept):
                kept.append(item)
        return (*kept, *items[MANY + 1 :])

    def _matched(self, gold: tuple[Answer, ...], answer: tuple[Answer, ...]) -> bool:
        if len(gold) != len(answer):
            return False
        if len(gold) > MANY:
            raise Hostile(f"a list of {len(gold)} answers")
        left = list(answer)
        for item in gold:
            found = next((i for i, other in enumerate(left) if self.equal(item, other)), None)
            if found is None:
                return False
            del left[found]
        return True

    def one_of_many(self, several: Many, one: Answer) -> bool:
        """A list of one answer is that answer; x = 1, y = 2 is a point."""
        items = self._distinct(several.items) if several.kind in ("set", "all") else several.items
        return len(items) == 1 and self.equal(items[0], one)

    def words(self, several: Many, words: Words) -> bool:
        """A set and words: only the empty one is words."""
        return not several.items and words.text == NOTHING

    def matrices(self, gold: Matrix, answer: Matrix) -> bool:
        """Entry by entry."""
        if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
            return False
        return all(map(self.equal, sum(gold.rows, ()), sum(answer.rows, ())))

    def vector(self, matrix: Matrix, several: Many) -> bool:
        """One row or column, and a tuple."""
        if (
            several.kind not in ("tuple", "list")
            or several.brackets not in ("", "()")
            or min(len(matrix.rows), len(matrix.rows[0])) > 1
        ):
            return False
        entries = sum(matrix.rows, ())
        return len(entries) == len(several.items) and all(map(self.equal, entries, several.items))

    # Intervals

    def spans(self, gold: Span, answer: Span) -> bool:
        """Two intervals."""
        return (
            gold.closed == answer.closed and self.values(gold.low, answer.low) and self.values(gold.high, answer.high)
        )

    def unions(self, gold: Union, answer: Union) -> bool:
        """Two unions, in any order."""
        return self._matched(gold.parts, answer.parts)

    def span_of(self, span: Span | Union, other: Answer) -> bool:
        """An interval, and what may stand for one."""
        if isinstance(other, Relation):
            seen = as_interval(other)
            return seen is not None and self.equal(span, seen)
        pair = as_span(other) if isinstance(other, Many) else None
        return pair is not None and isinstance(span, Span) and self.spans(span, pair)

    # Relations

    def relations(self, gold: Relation, answer: Relation) -> bool:
        """Two equations or inequalities: the same up to a factor."""
        if gold.signs == answer.signs and all(map(self._alike, gold.sides, answer.sides)):
            return True
        intervals = as_interval(gold), as_interval(answer)
        if intervals[0] is not None and intervals[1] is not None:
            return self.equal(intervals[0], intervals[1])
        if gold.signs != answer.signs or len(gold.signs) != 1:
            return False
        first, second = (("add", r.sides[0], negated(r.sides[1])) for r in (gold, answer))
        if names(first) != names(second) or not names(first):
            return False
        named = _assigned(gold), _assigned(answer)
        if named[0] and named[1] and named[0][0] == named[1][0] and gold.signs == ("=",):
            return self.values(named[0][1], named[1][1])
        return self.oracle.proportional(first, second, positive=gold.signs != ("=",) and gold.signs != ("!=",))

    def _alike(self, a: Tree, b: Tree) -> bool:
        return a == b or (names(a) == names(b) and self.values(a, b))

    def value_of(self, relation: Relation, value: Scalar) -> bool:
        """`x = 5` and 5; `2 + 3 = 5` and 5."""
        named = _assigned(relation)
        if named is not None:
            return named[0] not in names(value.tree) and self.equal(Scalar(named[1]), value)
        left, right = relation.sides[0], relation.sides[-1]
        computed = relation.signs == ("=",) and not names(right) and right != number(0)
        return computed and (not names(left) or not names(value.tree)) and self.equal(Scalar(right), value)

    def span_of_relation(self, relation: Relation, pair: Many) -> bool:
        """`0 < x < 1` and (0, 1)."""
        interval = as_interval(relation)
        return self.one_of_many(pair, relation) if interval is None else self.equal(interval, pair)


def _plain(answer: Answer) -> Answer:
    if isinstance(answer, Many) and answer.kind == "both":
        return _intersection(answer)
    if isinstance(answer, Union) and len(answer.parts) == 1:
        return answer.parts[0]
    return answer


def _intersection(both: Many) -> Answer:
    """`x > 1 and x < 3` as one interval."""
    spans = [as_interval(item) for item in both.items if isinstance(item, Relation)]
    lows = [s for s in spans if isinstance(s, Span) and s.low != MINUS_INFINITY]
    highs = [s for s in spans if isinstance(s, Span) and s.high != INFINITY]
    if len(lows) == len(highs) == 1 and lows[0] is not highs[0]:
        return Span(lows[0].low, highs[0].high, (lows[0].closed[0], highs[0].closed[1]))
    return Many(both.items, "all")


def as_interval(relation: Relation) -> Span | Union | None:
    """The values of x that `a < x < b`, `x >= a` or `x != a` allows; None for any other relation."""
    sides, signs = relation.sides, relation.signs
    if signs == ("!=",) and sides[0][0] == "sym" and not names(sides[1]):
        low, high = Span(MINUS_INFINITY, sides[1], (False, False)), Span(sides[1], INFINITY, (False, False))
        return Union((low, high))
    if not set(signs) <= {"<", "<="}:
        return None
    if len(signs) == 2 and sides[1][0] == "sym" and not names(sides[0]) | names(sides[2]):
        return Span(sides[0], sides[2], (signs[0] == "<=", signs[1] == "<="))
    if len(signs) == 1 and sides[0][0] == "sym" and not names(sides[1]):
        return Span(MINUS_INFINITY, sides[1], (False, signs[0] == "<="))
    if len(signs) == 1 and sides[1][0] == "sym" and not names(sides[0]):
        return Span(sides[0], INFINITY, (signs[0] == "<=", False))
    return None


def _assigned(item: Answer) -> tuple[str, Tree] | None:
    """The name and value of `x = 5`, `f(x) = 2x`, `5 = x`; None for any other answer."""
    if not isinstance(item, Relation) or item.signs != ("=",):
        return None
    left, right = item.sides
    for side, value in ((left, right), (right, left)):
        if side[0] == "sym" and side[1] not in names(value):
            return side[1], value
    called = left[0] == "mul" and len(left) == 3 and left[1][0] == "sym" and left[1][1] in "fghpqFGHPQAVTSE"
    return (f"{left[1][1]}()", right) if called else None


def _infinite(tree: Tree) -> int:
    if tree == INFINITY:
        return 1
    negative = tree[0] == "mul" and len(tree) == 3 and tree[1] in (("num", -1), number(-1)) and tree[2] == INFINITY
    return -1 if negative else 0


def _sized(scalar: Scalar) -> Tree:
    assert scalar.unit is not None
    return ("mul", scalar.tree, ("num", scalar.unit.size))


def _angles(a: Scalar, b: Scalar) -> bool:
    return all(s.unit is not None and s.unit.dimension in ((("deg", 1),), (("rad", 1),)) for s in (a, b))


def _radians(scalar: Scalar) -> Tree:
    degrees = scalar.unit is not None and scalar.unit.dimension == (("deg", 1),)
    return ("mul", scalar.tree, ("const", "deg")) if degrees else scalar.tree


_BY_KIND: list[tuple[tuple[Any, Any], Callable[..., bool]]] = [
    ((Scalar, Scalar), Comparison.scalars),
    ((Based, Based), Comparison.based),
    ((Based, Scalar), Comparison.based_bare),
    ((Many, Many), Comparison.many),
    ((Many, Words), Comparison.words),
    ((Matrix, Matrix), Comparison.matrices),
    ((Matrix, Many), Comparison.vector),
    ((Span, Span), Comparison.spans),
    ((Union, Union), Comparison.unions),
    ((Span | Union, Relation | Many), Comparison.span_of),
    ((Relation, Relation), Comparison.relations),
    ((Relation, Scalar), Comparison.value_of),
    ((Relation, Many), Comparison.span_of_relation),
    ((Many, Scalar | Relation | Matrix | Based), Comparison.one_of_many),
]
