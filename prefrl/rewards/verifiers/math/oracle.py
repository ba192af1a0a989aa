"""Equality of expressions, by arithmetic of many digits at fixed points and by sympy; runs in a worker.

Two expressions that agree to `DIGITS` digits, and twice as closely with twice the digits, are equal; with variables, at
several points. Agreement by accident has no chance worth naming; what is left to sympy is what has no such value:
sums, integrals and limits are worked out first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import sympy

from prefrl.rewards.verifiers.math.compare import Comparison, Rules
from prefrl.rewards.verifiers.math.exact import refuse
from prefrl.rewards.verifiers.math.parser import Tree, contains, names
from prefrl.rewards.verifiers.math.tokens import Hostile

DIGITS = 40
_NUMERATORS = (739, -1373, 2617, -431, 3907, 1129, -2749, 613, 1871, -907, 3301, 211, -1583, 2239, 97, -3187)
_VALUES = [Fraction(numerator, 1009) for numerator in _NUMERATORS]
TRIALS = 12


class Expressions:
    """The oracle of `Comparison`: mpmath's arithmetic, and sympy for calculus."""

    def same(self, a: Tree, b: Tree) -> bool:
        """Whether two expressions have the same value."""
        a, b = _ready(a), _ready(b)
        if a == b:
            return True
        variables = sorted(names(a) | names(b))
        real: list[bool] = []
        other: list[bool] = []
        for point in _points(variables):
            agreed = _agree(a, b, point)
            if agreed is not None:
                (real if agreed[1] else other).append(agreed[0])
            if real.count(False) or (real and not variables):
                break
        judged = real if len(real) >= 3 or not other else real + other
        return bool(judged) and all(judged) and (len(judged) >= 3 or not variables)

    def proportional(self, a: Tree, b: Tree, *, positive: bool) -> bool:
        """Whether one expression is a constant multiple of the other, fractions cleared."""
        if self._constant_ratio(_ready(a), _ready(b), positive):
            return True
        return not positive and self._constant_ratio(_numerator(a), _numerator(b), positive)

    def _constant_ratio(self, a: Tree, b: Tree, positive: bool) -> bool:
        ratios = []
        for point in _points(sorted(names(a) | names(b))):
            x, y = _value(a, point, DIGITS), _value(b, point, DIGITS)
            if x is None or y is None or not x or not y:
                continue
            ratios.append(x / y)
            if abs(ratios[-1] - ratios[0]) > 10 ** (10 - DIGITS) * abs(ratios[0]):
                return False
        return len(ratios) >= 3 and (not positive or (ratios[0].imag == 0 and ratios[0].real > 0))


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """The task of the workers: what `decide` says, with an oracle."""
    from prefrl.rewards.verifiers.math.deciding import decide

    decision = decide(job["golds"], job["answers"], Comparison(Rules(**job["rules"]), Expressions()))
    return {"correct": decision.correct, "read": decision.read, "evidence": decision.evidence}


def _points(variables: list[str]) -> list[dict[str, Fraction]]:
    if not variables:
        return [{}]
    return [
        {name: _VALUES[(trial * 5 + place * 3 + trial * place) % len(_VALUES)] for place, name in enumerate(variables)}
        for trial in range(TRIALS)
    ]


def _agree(a: Tree, b: Tree, point: dict[str, Fraction]) -> tuple[bool, bool] | None:
    """Whether two expressions agree at a point, and whether both are real there; None where one has no value."""
    differences = []
    for digits in (DIGITS, 2 * DIGITS):
        x, y = _value(a, point, digits), _value(b, point, digits)
        if x is None or y is None:
            return None
        with mpmath.workdps(digits + 10):
            differences.append(abs(x - y))
            size = max(abs(x), abs(y))
            real = all(
                abs(v.imag) <= mpmath.mpf(10) ** -DIGITS * max(abs(v.real), mpmath.mpf(10) ** -DIGITS) for v in (x, y)
            )
    coarse, fine = differences
    with mpmath.workdps(20):
        near = fine <= mpmath.mpf(10) ** (15 - 2 * DIGITS) * size
        vanishing = fine <= mpmath.mpf(10) ** (15 - DIGITS) * coarse
        return bool(near or (coarse < 1 and vanishing) or fine == coarse == 0), real


def _value(tree: Tree, point: dict[str, Fraction], digits: int) -> Any:
    """The value as a complex number of mpmath; None where there is none."""
    with mpmath.workdps(digits + 10):
        try:
            value = mpmath.mpc(_compute(tree, point))
        except (ArithmeticError, ValueError, LookupError, TypeError):
            return None
        return value if mpmath.isfinite(value.real) and mpmath.isfinite(value.imag) else None


def _compute(tree: Tree, point: dict[str, Fraction]) -> Any:
    kind = tree[0]
    if kind == "num":
        return (
            mpmath.mpf(tree[1].numerator) / tree[1].denominator
            if isinstance(tree[1], Fraction)
            else mpmath.mpf(tree[1])
        )
    if kind == "sym":
        return mpmath.mpf(point[tree[1]].numerator) / point[tree[1]].denominator
    if kind == "const":
        return {"pi": +mpmath.pi, "e": +mpmath.e, "i": mpmath.mpc(0, 1), "deg": mpmath.pi / 180}[tree[1]]
    parts = [_compute(part, point) for part in tree[1:] if isinstance(part, tuple)]
    if kind == "add":
        return mpmath.fsum(parts)
    if kind == "mul":
        return mpmath.fprod(parts)
    if kind == "pow":
        return _real_power(tree, parts)
    return _FUNCTIONS[tree[1]](*parts)


def _real_power(tree: Tree, parts: list[Any]) -> Any:
    """A power; an odd root of a negative number is the real one, as people mean it."""
    from prefrl.rewards.verifiers.math.exact import rational

    base, exponent = parts
    if not getattr(base, "imag", 0) and base.real < 0:
        exact = rational(tree[2])
        if exact is not None and exact.denominator > 1 and exact.denominator % 2:
            return (-1) ** exact.numerator * (-base) ** exponent
    return base**exponent


def _functions() -> dict[str, Callable[..., Any]]:
    same = "sin cos tan cot sec csc asin acos atan sinh cosh tanh coth ln floor ceil gamma binomial factorial"
    table: dict[str, Callable[..., Any]] = {name: getattr(mpmath, name) for name in same.split()}
    table |= {"log": mpmath.log10, "abs": abs, "sgn": mpmath.sign}
    return table | {name: functools.partial(by, key=_real) for name, by in (("min", min), ("max", max))}


def _real(value: Any) -> Any:
    return value.real


_FUNCTIONS = _functions()
_NAMES_OF_SYMPY = {"abs": "Abs", "min": "Min", "max": "Max", "ceil": "ceiling", "sgn": "sign"}


def _ready(tree: Tree) -> Tree:
    """The tree without sums, integrals and limits; raises Hostile for what could take forever."""
    refuse(tree)
    if not contains(tree, "sum", "prod", "int", "lim"):
        return tree
    worked = from_sympy(to_sympy(tree).doit())
    refuse(worked)
    return worked


def _numerator(tree: Tree) -> Tree:
    top: Tree = from_sympy(sympy.fraction(sympy.together(to_sympy(tree)))[0])
    return top


def to_sympy(tree: Tree) -> Any:
    """The expression for sympy."""
    kind = tree[0]
    if kind == "num":
        return sympy.Rational(tree[1].numerator, tree[1].denominator)
    if kind == "sym":
        return sympy.Symbol(tree[1])
    if kind == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo, "deg": sympy.pi / 180}[tree[1]]
    if kind in ("sum", "prod", "int", "lim"):
        name, body = sympy.Symbol(tree[2]), to_sympy(tree[1])
        limits = [to_sympy(part) for part in tree[3:]]
        if kind == "lim":
            return sympy.Limit(body, name, limits[0])
        return {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral}[kind](body, (name, *limits))
    parts = [to_sympy(part) for part in tree[1:] if isinstance(part, tuple)]
    if kind == "fn":
        name = _NAMES_OF_SYMPY.get(str(tree[1]), str(tree[1]))
        return sympy.log(parts[0], 10) if name == "log" else getattr(sympy, name)(*parts)
    return {"add": sympy.Add, "mul": sympy.Mul, "pow": sympy.Pow}[kind](*parts)


def from_sympy(expression: Any) -> Tree:
    """The tree of what sympy returned; raises Hostile for what it could not work out."""
    if expression.is_Rational:
        return ("num", Fraction(int(expression.p), int(expression.q)))
    if expression.is_Float:
        return ("num", Fraction(str(expression)))
    if expression.is_Symbol:
        return ("sym", str(expression))
    constants = {sympy.pi: "pi", sympy.E: "e", sympy.I: "i", sympy.oo: "inf"}
    if expression in constants:
        return ("const", constants[expression])
    kinds = {sympy.Add: "add", sympy.Mul: "mul", sympy.Pow: "pow"}
    parts = tuple(from_sympy(part) for part in expression.args)
    if expression.func in kinds:
        return (kinds[expression.func], *parts)
    if expression.func is sympy.exp:
        return ("pow", ("const", "e"), *parts)
    ours = {theirs: name for name, theirs in _NAMES_OF_SYMPY.items()} | {"log": "ln"}
    name = ours.get(expression.func.__name__, expression.func.__name__)
    if name not in _FUNCTIONS or not parts:
        raise Hostile(f"{expression.func.__name__} is left unevaluated")
    return ("fn", name, *parts)
