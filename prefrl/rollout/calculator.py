"""A pocket calculator as a tool: sums that are too long to do in one's head, answered over several turns.

A turn that holds `<calc>EXPRESSION</calc>` is answered with the value; `<answer>NUMBER</answer>` ends the episode.
Every turn counts against the budget of turns, whatever it holds.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from prefrl.errors import DataError
from prefrl.rollout.environments import Reply
from prefrl.types import Prompt

LONGEST = 100  # characters of an expression
LARGEST = 10**30  # of any number on the way, so that nothing takes long
_ALLOWED = re.compile(r"[0-9eE.+\-*/() \t\n]*")  # other text has no business in a parser of Python
_ANSWER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?(?:/[0-9]+)?")
_SIGNS = str.maketrans({"\u2212": "-", "\u00d7": "*", "\u00f7": "/"})
_HOW = "Write <calc>EXPRESSION</calc> to calculate, or <answer>NUMBER</answer> when you know."
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(expression: str) -> str:
    """The exact value of an expression of numbers, brackets and + - * /, or what is wrong with it.

    A value that is no whole number is shown with up to ten digits after the point; a smaller one with ten digits.
    """
    expression = expression.translate(_SIGNS).strip()
    if len(expression) > LONGEST:
        return f"error: the expression has {len(expression)} characters; {LONGEST} are the most"
    try:
        if not _ALLOWED.fullmatch(expression):
            raise ValueError(expression)
        value = _value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "error: expected numbers, brackets and + - * /"
    except ZeroDivisionError:
        return "error: division by zero"
    except OverflowError:
        return "error: the number is too large"
    return str(value.numerator) if value.denominator == 1 else _decimal(value)


class Calculator:
    """The environment; the prompt's column `answer` holds the number that is looked for."""

    version = "2"

    def reset(self, prompt: Prompt) -> str:
        """Start an episode; the prompt itself explains the tool.

        Raises:
            DataError: the prompt has no column `answer` with a number.
        """
        try:
            self.wanted = Fraction(str(prompt.columns["answer"]).replace(",", ""))
        except (KeyError, ValueError, ZeroDivisionError):
            raise DataError(
                f"Prompt {prompt.id!r} has the answer {prompt.columns.get('answer')!r}; expected a column 'answer' "
                "with a number."
            ) from None
        self.counts = {"turns": 0, "calls": 0, "failed_calls": 0, "malformed": 0}
        self.success = 0.0
        return ""

    def step(self, action: str) -> Reply:
        """Calculate, or take the answer; a turn with neither is told what it may hold."""
        self.counts["turns"] += 1
        answer = next((number for text in _inside(action, "answer") if (number := _number(text)) is not None), None)
        if answer is not None:
            self.success = float(answer == self.wanted)
            return Reply("", ended=True)
        call = next(_inside(action, "calc"), None)
        if call is None:
            self.counts["malformed"] += 1
            return Reply(_HOW)
        result = calculate(call)
        self.counts["calls"] += 1
        self.counts["failed_calls"] += result.startswith("error")
        return Reply(result)

    def report(self) -> Mapping[str, Any]:
        """`success`, 1 for the right answer; `turns`, `calls`, `failed_calls` and `malformed` turns."""
        return {"success": self.success, **self.counts}


def _inside(text: str, tag: str) -> Iterator[str]:
    """What stands in each pair of a tag that holds no further one."""
    for part in text.split(f"<{tag}>")[1:]:
        inside, closed, _ = part.partition(f"</{tag}>")
        if closed:
            yield inside


def _number(text: str) -> Fraction | None:
    """The number that a text is: 5, -2.50, 1,234 or 3/4; None for others, and for those of too many digits."""
    plain = text.translate(_SIGNS).strip()
    if not plain or len(plain) > LONGEST or not _ANSWER.fullmatch(plain):
        return None
    try:
        return Fraction(plain.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None


def _decimal(value: Fraction) -> str:
    """A number with up to ten digits after the point, rounded; the first ten digits where those would be zeros."""
    if abs(value) < Fraction(1, 10**9):
        return f"{float(value):.10g}"
    digits = f"{round(abs(value) * 10**10):011d}"
    return f"{'-' if value < 0 else ''}{digits[:-10]}.{digits[-10:]}".rstrip("0").rstrip(".")


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        found = Fraction(str(node.value))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        found = _value(node.operand) * (-1 if isinstance(node.op, ast.USub) else 1)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        found = _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("something else than arithmetic")
    if abs(found) > LARGEST or found.denominator > LARGEST:
        raise OverflowError
    return found
