"""Values of expressions without variables: exact where they are rational, and never at any price."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from prefrl.rewards.verifiers.math.parser import Tree, contains
from prefrl.rewards.verifiers.math.tokens import Hostile

MOST_TERMS = 10_000  # of a sum or product


@dataclass(frozen=True, slots=True)
class Limits:
    """The bits of the largest number, and the largest factorial, that are worked out."""

    bits: int
    factorial: int


LIGHT = Limits(bits=2_000, factorial=200)  # takes microseconds
HEAVY = Limits(bits=100_000, factorial=10_000)  # belongs into a worker that can be killed


def rational(tree: Tree, limits: Limits = HEAVY) -> Fraction | None:
    """The exact value; None when it is not seen to be rational.

    Raises:
        Hostile: a number beyond the limits.
        ZeroDivisionError: it divides by zero.
    """
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1])
    if kind == "pow":
        return _power(rational(tree[1], limits), rational(tree[2], limits), limits)
    if kind == "fn":
        values = [rational(part, limits) for part in tree[2:]]
        return None if None in values else _function(tree[1], [v for v in values if v is not None], limits)
    if kind not in ("add", "mul"):
        return None
    total = Fraction(int(kind == "mul"))
    for part in tree[1:]:
        value = rational(part, limits)
        if value is None:
            return None
        total = total + value if kind == "add" else total * value
        if _bits(total) > limits.bits:
            raise Hostile("a number that is too long")
    return total


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _power(base: Fraction | None, exponent: Fraction | None, limits: Limits) -> Fraction | None:
    if exponent is not None and exponent.denominator == 1 and base is not None:
        if base in (0, 1, -1):
            if base == 0 and exponent < 0:
                raise ZeroDivisionError
            return base ** (int(exponent) % 2 if base == -1 else min(int(exponent), 1))
        if abs(exponent) * _bits(base) > limits.bits:
            raise Hostile(f"the power {_short(base)}^{_short(exponent)}")
        return base ** int(exponent)
    if base is None or exponent is None or base < 0 or exponent.denominator > 64:
        return None
    if abs(exponent) * _bits(base) > limits.bits:
        raise Hostile(f"the power {_short(base)}^{_short(exponent)}")
    top, bottom = (_root(n, exponent.denominator) for n in (base.numerator, base.denominator))
    return (
        None if top is None or bottom is None else _power(Fraction(top, bottom), Fraction(exponent.numerator), limits)
    )


def _short(value: Fraction) -> str:
    return str(value) if _bits(value) < 60 else "..."


def _root(value: int, degree: int) -> int | None:
    """The exact root of a whole number; None if there is none."""
    if value < 2:
        return value
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low if low**degree == value else None


def _function(name: str, values: list[Fraction], limits: Limits) -> Fraction | None:
    whole = all(v.denominator == 1 for v in values)
    numbers = [int(v) for v in values]
    if name == "factorial" and whole and numbers[0] >= 0:
        if numbers[0] > limits.factorial:
            raise Hostile(f"the factorial of {_short(values[0])}")
        return Fraction(math.factorial(numbers[0]))
    if name == "binomial" and whole and min(numbers) >= 0:
        if numbers[0] > limits.factorial:
            raise Hostile(f"the binomial coefficient of {_short(values[0])}")
        return Fraction(math.comb(*numbers))
    if name in ("gcd", "lcm") and whole:
        return Fraction(math.gcd(*numbers) if name == "gcd" else math.lcm(*numbers))
    simple = _SIMPLE.get(name)
    return None if simple is None else Fraction(simple(values))


_SIMPLE: dict[str, Callable[[list[Fraction]], Fraction | int]] = {
    "abs": lambda values: abs(values[0]),
    "floor": lambda values: math.floor(values[0]),
    "ceil": lambda values: math.ceil(values[0]),
    "sgn": lambda values: (values[0] > 0) - (values[0] < 0),
    "min": min,
    "max": max,
}


def refuse(tree: Tree) -> None:
    """Raise Hostile for what could take forever: huge powers and factorials anywhere, long sums."""
    for part in tree:
        if isinstance(part, tuple):
            refuse(part)
    if tree[0] in ("pow", "fn") or (tree[0] in ("add", "mul") and not contains(tree, "sym")):
        try:
            value = rational(tree)
        except ZeroDivisionError:
            return
        if value is None and tree[0] == "pow" and (n := rational(tree[2])) is not None and abs(n) > 10_000:
            raise Hostile(f"an exponent of {_short(n)}")
    if tree[0] in ("sum", "prod"):
        low, high = rational(tree[3]), rational(tree[4])
        if low is not None and high is not None and high - low > MOST_TERMS:
            raise Hostile(f"a {tree[0]} of {_short(high - low)} terms")


_FLOATS: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "asin": cmath.asin, "acos": cmath.acos, "atan": cmath.atan,
    "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh, "ln": cmath.log, "log": cmath.log10, "abs": abs,
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e, "i": 1j, "deg": math.pi / 180}


def approximate(tree: Tree) -> complex | None:
    """The value in floating point; None where there is none or it is beyond the range."""
    try:
        value = _float(tree)
    except (ArithmeticError, ValueError, LookupError, TypeError):
        return None
    return value if cmath.isfinite(value) else None


def _float(tree: Tree) -> complex:
    kind = tree[0]
    if kind == "num":
        return complex(tree[1])
    if kind == "const":
        return complex(_CONSTANTS[tree[1]])
    if kind == "pow":
        return _float(tree[1]) ** _float(tree[2])
    if kind == "fn":
        return complex(_FLOATS[tree[1]](_float(tree[2])))
    if kind == "add":
        return sum((_float(part) for part in tree[1:]), 0j)
    if kind == "mul":
        return math.prod((_float(part) for part in tree[1:]), start=1 + 0j)
    raise LookupError(kind)
