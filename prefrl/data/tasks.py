"""Built-in tasks with verifiable answers, split so that what is held out is never trained on.

    task:products         one-digit products, "What is 7 times 8?"
    task:larger           the larger of two two-digit numbers, after three solved turns
    task:guessing         find a hidden number from 1 to 16, for the environment `guessing`

`task:NAME` is the training split and `task:NAME:held_out` the other one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from prefrl.errors import DataError, did_you_mean

Row = dict[str, Any]
HELD_OUT = 0.25  # share of operand pairs that are never trained on


def task_rows(name: str) -> list[Row]:
    """Prompt rows of `task:NAME[:train|held_out]`, each with its `answer`.

    Raises:
        DataError: there is no such task or split.
    """
    _, _, rest = name.partition(":")
    task, _, split = rest.partition(":")
    if task not in TASKS:
        raise DataError(f"There is no built-in task {task!r}; valid: {', '.join(TASKS)}.{did_you_mean(task, TASKS)}")
    if split not in ("", "train", "held_out"):
        raise DataError(f"{name}: the split is {split!r}; valid: train, held_out.")
    rows, held_out = TASKS[task]
    return [row for row in rows() if held_out(row) == (split == "held_out")]


def by_operands(row: Row) -> bool:
    """By the unordered pair: 7 times 8 and 8 times 7 always land on the same side."""
    digest = hashlib.sha256(repr(sorted(row["operands"])).encode()).digest()
    return digest[0] / 256 < HELD_OUT


def by_target(row: Row) -> bool:
    """Four of the 16 targets, evenly spread and symmetric: each stands between numbers that are trained on."""
    return row["target"] in (2, 6, 11, 15)


def products() -> list[Row]:
    """The 64 products of 2..9."""
    return [
        _row(f"products-{a}x{b}", [_user(f"What is {a} times {b}?")], [a, b], a * b)
        for a in range(2, 10)
        for b in range(2, 10)
    ]


def larger() -> list[Row]:
    """Pairs of different two-digit numbers, each asked after three solved examples."""
    solved = [(34, 71), (88, 15), (42, 49)]
    shots = [turn for a, b in solved for turn in (_user(_which(a, b)), _assistant(str(max(a, b))))]
    pairs = [(a, b) for a in range(10, 100, 3) for b in range(11, 100, 4) if a != b and (a, b) not in solved]
    return [_row(f"larger-{a}-{b}", [*shots, _user(_which(a, b))], [a, b], max(a, b)) for a, b in pairs]


def guessing() -> list[Row]:
    """One prompt for each of the 16 numbers; all read the same, for only the environment knows the target."""
    rules = (
        "I am thinking of a whole number from 1 to 16. You have four guesses, and after each one I say higher, lower "
        "or correct. Answer with one number and nothing else. What is your guess?"
    )
    return [{"id": f"guessing-{n}", "prompt": [_user(rules)], "target": n} for n in range(1, 17)]


def _which(a: int, b: int) -> str:
    return f"Which number is larger, {a} or {b}?"


def _user(content: str) -> Row:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Row:
    return {"role": "assistant", "content": content}


def _row(name: str, messages: list[Row], operands: list[int], answer: int) -> Row:
    return {"id": name, "prompt": messages, "operands": operands, "answer": str(answer)}


class Task(NamedTuple):
    """The rows of a task, and which of them are held out."""

    rows: Callable[[], list[Row]]
    held_out: Callable[[Row], bool] = by_operands


TASKS: dict[str, Task] = {
    "products": Task(products),
    "larger": Task(larger),
    "guessing": Task(guessing, by_target),
}
