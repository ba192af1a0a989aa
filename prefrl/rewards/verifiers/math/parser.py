"""Expressions of LaTeX or plain text as trees of tuples.

A tree is one of

    ("num", Fraction)    ("sym", "x_1")    ("const", "pi" | "e" | "i" | "inf")
    ("add", a, b, ...)   ("mul", a, b, ...)   ("pow", base, exponent)   ("fn", name, a, ...)
    ("pm", a)            +a or -a
    ("sum" | "prod", body, name, low, high)   ("int", body, name, low, high)   ("lim", body, name, to)

Reading is strict: what is not understood to its last character raises `Unreadable`. A parser that keeps what it could
read takes `1 - 1/\\mathrm{e}` for 1.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from prefrl.rewards.verifiers.math.tokens import (
    ALIASES,
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    INVERSE,
    Hostile,
    Unreadable,
    tokens_of,
)

Tree: TypeAlias = tuple[Any, ...]

DEEPEST = 40  # brackets within brackets
LONGEST = 1500  # characters of one expression

_TIMES = {r"\times", r"\cdot", "*"}


def parse(text: str) -> Tree:
    """The tree of a cleaned expression.

    Raises:
        Unreadable: anything in it is not understood.
        Hostile: it is too long or too deeply nested.
    """
    if len(text) > LONGEST:
        raise Hostile(f"{len(text)} characters")
    return _Parser(tokens_of(text)).whole()


def number(text: str | int) -> Tree:
    """The tree of digits."""
    return ("num", Fraction(text))


class _Parser:
    """Recursive descent over a list of tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0
        self.bars = 0

    def whole(self) -> Tree:
        if not self.tokens:
            raise Unreadable("nothing")
        tree = self.sum()
        if self.at < len(self.tokens):
            raise Unreadable(self.peek())
        return tree

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, *tokens: str) -> bool:
        if self.peek() in tokens:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise Unreadable(f"{self.peek() or 'end'}, not {token}")

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Hostile("brackets nested too deeply")
        terms = [self.signed(first=True)]
        while self.peek() in ("+", "-", r"\pm", r"\mp"):
            terms.append(self.signed(first=False))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def signed(self, *, first: bool) -> Tree:
        sign = self.next() if not first or self.peek() in ("+", "-", r"\pm", r"\mp") else "+"
        tree = self.signed(first=True) if self.peek() in ("+", "-") else self.product()  # 3 + -2
        if sign in (r"\pm", r"\mp"):
            return ("pm", negated(tree) if sign == r"\mp" else tree)
        return negated(tree) if sign == "-" else tree

    def product(self) -> Tree:
        factors = [self.power()]
        while True:
            if self.peek() in _TIMES:
                self.next()
                factors.append(self.factor())
            elif self.take("/"):
                factors.append(("pow", self.factor(), number(-1)))
            elif self.starts_factor():
                if self.peek()[0].isdigit() and self.tokens[self.at - 1][0].isdigit():
                    raise Unreadable("two numbers side by side")
                factors.append(self.power())
            else:
                return factors[0] if len(factors) == 1 else ("mul", *factors)

    def factor(self) -> Tree:
        if self.take("-"):
            return negated(self.factor())
        self.take("+")
        return self.power()

    def starts_factor(self) -> bool:
        token = self.peek()
        if token == "|":
            return not self.bars
        if token[:1] == "\\":
            return token[1:].isalpha() and token[1:] not in _STOPS and token not in _TIMES
        return token[:1].isalnum() or token in ("(", "{", "[")

    def power(self) -> Tree:
        base = self.postfixed(self.atom())
        if self.take("^", "**"):
            if self.take(r"\circ"):
                return ("mul", base, ("const", "deg"))
            return self.postfixed(("pow", base, self.factor()))
        return base

    def postfixed(self, tree: Tree) -> Tree:
        while True:
            if self.peek() == "!":
                self.next()
                tree = ("fn", "factorial", tree)
            elif self.peek() == "%":
                self.next()
                tree = ("mul", tree, ("num", Fraction(1, 100)))
            elif self.peek() == "^" and self.peek(1) == "{" and self.peek(2) == r"\circ" and self.peek(3) == "}":
                self.at += 4
                tree = ("mul", tree, ("const", "deg"))
            else:
                return tree

    def atom(self) -> Tree:
        token = self.next()
        if token and token[0] in "0123456789.":
            return self.digits(token)
        if token in _BRACKETS:
            return self.group(_BRACKETS[token])
        if token == "|":
            self.bars += 1
            inside = self.sum()
            self.expect("|")
            self.bars -= 1
            return ("fn", "abs", inside)
        if len(token) == 1 and token.isalpha():
            if token in ("e", "i"):
                return ("const", token)
            return self.symbol(token)
        if token.startswith("\\"):
            return self.command(token[1:])
        raise Unreadable(token or "end")

    def group(self, closing: str) -> Tree:
        bars, self.bars = self.bars, 0
        tree = self.sum()
        self.expect(closing)
        self.bars = bars
        return tree

    def digits(self, token: str) -> Tree:
        value = Fraction(token.replace(",", "").rstrip("."))
        if self.peek() in (r"\overline", r"\bar") and "." in token:
            self.next()
            self.expect("{")
            repeated = self.next()
            self.expect("}")
            if not repeated.isdigit():
                raise Unreadable(repeated)
            places = len(token.partition(".")[2])
            value += Fraction(int(repeated), (10 ** len(repeated) - 1) * 10**places)
            return ("num", value)
        if self.peek() == "_":
            raise Unreadable("a number with a subscript")
        return ("num", value + (self.mixed() if value.denominator == 1 and "." not in token else 0))

    def mixed(self) -> Fraction:
        """The fraction after a whole number: `1\\frac{1}{2}` is 3/2. Zero, and nothing read, if there is none."""
        start = self.at
        try:
            if self.take(r"\frac"):
                top, bottom = self.argument(), self.argument()
                if top[0] == bottom[0] == "num" and _proper(top[1], bottom[1]) and self.peek() not in ("^", "!"):
                    return Fraction(top[1] / bottom[1])
            elif self.peek().isdigit() and self.peek(1) == "/" and self.peek(2).isdigit():
                low, high = int(self.peek()), int(self.peek(2))
                if _proper(low, high) and self.peek(3) not in ("^", "!", "/"):
                    self.at += 3
                    return Fraction(low, high)
        except Unreadable:
            pass
        self.at = start
        return Fraction(0)

    def symbol(self, name: str) -> Tree:
        if self.take("_"):
            name += "_" + self.subscript()
        while self.take("'"):
            name += "'"
        return ("sym", name)

    def subscript(self) -> str:
        if not self.take("{"):
            return self.next().lstrip("\\")
        parts, depth = [], 1
        while depth:
            token = self.next()
            if not token:
                raise Unreadable("end")
            depth += (token == "{") - (token == "}")
            parts.append(token.lstrip("\\"))
        return "".join(parts[:-1])

    def argument(self) -> Tree:
        """What follows a command: a group, or one token; of `\\frac12` single digits."""
        if self.take("{"):
            return self.group("}")
        token = self.peek()
        if token.isdigit() and len(token) > 1:
            self.tokens[self.at : self.at + 1] = list(token)
            token = token[0]
        if token.isdigit():
            self.next()
            return number(token)
        return self.atom()

    def command(self, name: str) -> Tree:
        if name in _READERS:
            return _READERS[name](self)
        if name in CONSTANTS:
            return ("const", CONSTANTS[name])
        if name in FUNCTIONS:
            return self.function(name)
        if name in GREEK:
            return self.symbol(name)
        raise Unreadable(f"\\{name}")

    def function(self, name: str) -> Tree:
        base = None
        if name == "log" and self.take("_"):
            base = self.argument()
        exponent = None
        if self.take("^", "**"):
            exponent = self.argument() if self.peek() != "-" else self.factor()
        if exponent == number(-1) and name in INVERSE:
            name, exponent = INVERSE[name], None
        arguments = self.arguments(name)
        name = ALIASES.get(name, name)
        if name == "log" and base is not None:
            tree: Tree = ("mul", ("fn", "ln", *arguments), ("pow", ("fn", "ln", base), number(-1)))
        elif name == "sqrt":
            tree = ("pow", arguments[0], ("num", Fraction(1, 2)))
        elif name == "exp":
            tree = ("pow", ("const", "e"), arguments[0])
        else:
            tree = ("fn", name, *arguments)
        return tree if exponent is None else ("pow", tree, exponent)

    def arguments(self, name: str) -> list[Tree]:
        """`(a, b)` or `{a}`; without brackets the factors up to the next sign, bracket or function."""
        for opening in ("(", "{", "["):
            if self.take(opening):
                found = [self.sum()]
                while self.take(","):
                    found.append(self.sum())
                self.expect(_BRACKETS[opening])
                return found
        factors = [self.power()]
        while self.starts_factor() and self.peek() not in ("(", "[") and self.peek()[1:] not in FUNCTIONS:
            factors.append(self.power())
        if name not in ("ln", "log") and self.take("/"):  # sin x/2 is sin(x/2), and ln 2/3 is (ln 2)/3
            factors.append(("pow", self.power(), number(-1)))
        return [factors[0] if len(factors) == 1 else ("mul", *factors)]

    def root(self) -> Tree:
        degree = number(2)
        if self.take("["):
            degree = self.group("]")
        inside = self.argument() if self.peek() != "(" else self.atom()
        return ("pow", inside, ("pow", degree, number(-1)))

    def fraction(self) -> Tree:
        top = self.argument()
        return ("mul", top, ("pow", self.argument(), number(-1)))

    def between(self, name: str, closing: str) -> Tree:
        inside = self.sum()
        self.expect(closing)
        return ("fn", name, inside)

    def binomial(self) -> Tree:
        return ("fn", "binomial", self.argument(), self.argument())

    def limits(self) -> tuple[str, Tree, Tree]:
        """`_{k=1}^{n}` after a big operator."""
        self.expect("_")
        self.expect("{")
        name = self.next()
        self.expect("=")
        low = self.group("}")
        self.expect("^")
        return name, low, self.argument()

    def series(self, kind: str) -> Tree:
        name, low, high = self.limits()
        return (kind, self.product(), name, low, high)

    def integral(self) -> Tree:
        self.expect("_")
        low = self.argument() if self.peek() != "-" else self.factor()
        self.expect("^")
        high = self.argument() if self.peek() != "-" else self.factor()
        end = next((at for at in range(self.at, len(self.tokens) - 1) if self.tokens[at] == "d"), -1)
        if end < 0:
            raise Unreadable("an integral without d")
        inside = _Parser(self.tokens[self.at : end])
        inside.depth = self.depth
        self.at = end + 1
        return ("int", inside.whole() if inside.tokens else number(1), self.next(), low, high)

    def limit(self) -> Tree:
        self.expect("_")
        self.expect("{")
        name = self.next()
        if not self.take(r"\to", r"\rightarrow"):
            raise Unreadable("a limit without an arrow")
        to = self.group("}")
        return ("lim", self.product(), name, to)


_BRACKETS = {"(": ")", "[": "]", "{": "}"}
# Commands that begin no factor.
_STOPS = frozenset(
    [
        *("pm", "mp", "le", "ge", "ne", "cup", "cap", "in", "to", "rightarrow", "Rightarrow", "approx", "equiv"),
        *("rfloor", "rceil", "rangle", "circ", "ldots", "overline", "bar", "emptyset", "R", "Z", "Q", "N", "C"),
    ]
)
_READERS: dict[str, Callable[[_Parser], Tree]] = {
    "frac": _Parser.fraction,
    "sqrt": _Parser.root,
    "binom": _Parser.binomial,
    "lfloor": lambda parser: parser.between("floor", r"\rfloor"),
    "lceil": lambda parser: parser.between("ceil", r"\rceil"),
    "sum": lambda parser: parser.series("sum"),
    "prod": lambda parser: parser.series("prod"),
    "int": _Parser.integral,
    "lim": _Parser.limit,
}


def negated(tree: Tree) -> Tree:
    """Minus the tree; a number stays a number."""
    if tree[0] == "num":
        return ("num", -tree[1])
    return ("mul", number(-1), tree)


def _proper(top: Fraction | int, bottom: Fraction | int) -> bool:
    return Fraction(top).denominator == Fraction(bottom).denominator == 1 and 0 < top < bottom


def names(tree: Tree) -> frozenset[str]:
    """Names of the free variables."""
    if tree[0] == "sym":
        return frozenset((tree[1],))
    inside = frozenset[str]().union(*(names(part) for part in tree if isinstance(part, tuple)))
    return inside - {tree[2]} if tree[0] in ("sum", "prod", "int", "lim") else inside


def contains(tree: Tree, *kinds: str) -> bool:
    """Whether a node of one of these kinds occurs."""
    return tree[0] in kinds or any(contains(part, *kinds) for part in tree if isinstance(part, tuple))
