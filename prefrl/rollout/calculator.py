"""A pocket calculator as a tool: sums that are too long to do in one's head, answered over several turns.

A turn that holds `<calc>EXPRESSION</calc>` is answered with the value; `<answer>NUMBER</answer>` ends the episode.
Every turn counts against the budget of turns, whatever it holds.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from prefrl.errors import DataError
from prefrl.rollout.environments import Reply
from prefrl.types import Prompt

LONGEST = 100  # characters of an expression
LARGEST = 10**30  # of any number on the way, so that nothing takes long
_CALL = re.compile(r"<calc>(.*?)</calc>", re.DOTALL)
_ANSWER = re.compile(r"<answer>\s*([-+]?[\d,]*\.?\d+)\s*</answer>")
_HOW = "Write <calc>EXPRESSION</calc> to calculate, or <answer>NUMBER</answer> when you know."
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(expression: str) -> str:
    """The exact value of an expression of numbers, brackets and + - * /, or what is wrong with it.

    A value that is no whole number is shown with up to ten digits after the point.
    """
    if len(expression) > LONGEST:
        return f"error: the expression has {len(expression)} characters; {LONGEST} are the most"
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return "error: expected numbers, brackets and + - * /"
    except ZeroDivisionError:
        return "error: division by zero"
    except OverflowError:
        return "error: the number is too large"
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"


class Calculator:
    """The environment; the prompt's column `answer` holds the number that is looked for."""

    version = "1"

    def reset(self, prompt: Prompt) -> str:
        """Start an episode; the prompt itself explains the tool.

        Raises:
            DataError: the prompt has no column `answer` with a number.
        """
        try:
            self.wanted = Fraction(str(prompt.columns["answer"]))
        except (KeyError, ValueError):
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
        if answer := _ANSWER.search(action):
            self.success = float(Fraction(answer[1].replace(",", "")) == self.wanted)
            return Reply("", ended=True)
        call = _CALL.search(action)
        if call is None:
            self.counts["malformed"] += 1
            return Reply(_HOW)
        result = calculate(call[1])
        self.counts["calls"] += 1
        self.counts["failed_calls"] += result.startswith("error")
        return Reply(result)

    def report(self) -> Mapping[str, Any]:
        """`success`, 1 for the right answer; `turns`, `calls`, `failed_calls` and `malformed` turns."""
        return {"success": self.success, **self.counts}


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
