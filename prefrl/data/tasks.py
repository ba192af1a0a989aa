"""Built-in tasks with verifiable answers, split so that what is held out is never trained on.

    task:products         one-digit products, "What is 7 times 8?"
    task:larger           the larger of two two-digit numbers, after three solved turns
    task:guessing         find a hidden number from 1 to 16, for the environment `guessing`
    task:calculator       products of two three-digit numbers, for the environment `calculator`
    task:guessing_play    turns of that game played well enough to learn its rules from, with completions
    task:word_problems    one-step word problems of 20 kinds, with equations as completions to begin from
    task:records          sentences about people to write as JSON
    task:repair           small Python files with one bug each, for the environment `repair`
    task:reasoning_gym:DATASET[:SIZE]  questions of the package reasoning-gym, where it is installed

`task:NAME` is the training split and `task:NAME:held_out` the other one.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from prefrl.data.reasoning_gym import generated
from prefrl.data.repairs import by_bug, repairs
from prefrl.data.word_problems import by_story, by_town, records, word_problems
from prefrl.errors import DataError, did_you_mean

Row = dict[str, Any]
_GUESSING = (
    "I am thinking of a whole number from 1 to 16. You have four guesses, and after each one I say higher, lower or "
    "correct. Answer with one number and nothing else. What is your guess?"
)
SPLITS = ("train", "held_out")
HELD_OUT = 0.25  # share of operand pairs and of questions that are never trained on


def task_rows(name: str) -> list[Row]:
    """Prompt rows of `task:NAME[:train|held_out]`, each with its `answer`.

    Raises:
        DataError: there is no such task or split.
    """
    task, *rest = name.split(":")[1:]
    if task not in TASKS and task != "reasoning_gym":
        known = (*TASKS, "reasoning_gym:DATASET")
        raise DataError(f"There is no built-in task {task!r}; valid: {', '.join(known)}.{did_you_mean(task, known)}")
    split = rest.pop() if rest and rest[-1] in SPLITS else "train"
    if task == "reasoning_gym":
        rows, held_out = Task(functools.partial(generated, name, rest), by_question)
    elif not rest:
        rows, held_out = TASKS[task]
    else:
        raise DataError(f"{name}: the split is {':'.join(rest)!r}; valid: {', '.join(SPLITS)}.")
    return [row for row in rows() if held_out(row) == (split == "held_out")]


def by_operands(row: Row) -> bool:
    """By the unordered pair: 7 times 8 and 8 times 7 always land on the same side."""
    return _chosen(repr(sorted(row["operands"])))


def by_question(row: Row) -> bool:
    """By the words of a question that was made by chance, so that one that was made twice lands on one side."""
    return _chosen(row["question"])


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


def calculator() -> list[Row]:
    """Products that nobody does in one's head, with a calculator at hand."""
    how = (
        "You have a calculator: write <calc>EXPRESSION</calc> and wait for its value. When you know the answer, write "
        "<answer>NUMBER</answer>."
    )
    pairs = [(a, b) for a in range(101, 1000, 47) for b in range(103, 1000, 53)]
    return [_row(f"calculator-{a}x{b}", [_user(f"What is {a} times {b}? {how}")], [a, b], a * b) for a, b in pairs]


def guessing() -> list[Row]:
    """One prompt for each of the 16 numbers; all read the same, for only the environment knows the target."""
    return [{"id": f"guessing-{n}", "prompt": [_user(_GUESSING)], "target": n} for n in range(1, 17)]


def guessing_play() -> list[Row]:
    """Every turn of 40 games for each number, guessing uniformly among what the answers have left: .58 of them win."""
    rng = random.Random(0)
    return [turn for target in range(1, 17) for game in range(40) for turn in _play(target, game, rng)]


def _play(target: int, game: int, rng: random.Random) -> list[Row]:
    low, high, said, turns = 1, 16, [_user(_GUESSING)], []
    for turn in range(4):
        guess = rng.randint(low, high)
        name = f"guessing-{target}-{game}-{turn}"
        turns.append({"id": name, "prompt": list(said), "completion": str(guess), "target": target})
        if guess == target:
            break
        low, high = (guess + 1, high) if guess < target else (low, guess - 1)
        said += [_assistant(str(guess)), _user("higher" if guess < target else "lower")]
    return turns


def _chosen(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] / 256 < HELD_OUT


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
    "calculator": Task(calculator),
    "guessing": Task(guessing, by_target),
    "guessing_play": Task(guessing_play, by_target),
    "repair": Task(repairs, by_bug),
    "word_problems": Task(word_problems, by_story),
    "records": Task(records, by_town),
}
