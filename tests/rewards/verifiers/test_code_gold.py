"""Right programs pass, mutated ones fail: tasks made here, and MBPP and HumanEval where PREFRL_DATA has them."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from mutate import mutants, returns_none

from prefrl.rewards.verifiers.code import code

BOX = {"floor": "B"}
MADE = {
    "clamp": ("def clamp(x, low, high):\n    return max(low, min(x, high))\n", [(5, 1, 3), (0, 1, 3), (2, 1, 3)]),
    "count_even": ("def count_even(xs):\n    return sum(1 for x in xs if x % 2 == 0)\n", [([1, 2, 4],), ([],), ([3],)]),
    "is_prime": (
        "def is_prime(n):\n    if n < 2:\n        return False\n    for d in range(2, n):\n        if n % d == 0:\n"
        "            return False\n    return True\n",
        [(n,) for n in range(13)],
    ),
    "fibonacci": (
        "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
        [(n,) for n in (0, 1, 2, 3, 10)],
    ),
    "digits": (
        "def digits(n):\n    total = 0\n    while n > 0:\n        total += n % 10\n        n //= 10\n"
        "    return total\n",
        [(0,), (7,), (123,), (990,)],
    ),
}


def made_rows() -> list[dict[str, Any]]:
    """Tasks whose expected values come from running the program here."""
    rows = []
    for name, (source, inputs) in MADE.items():
        names: dict[str, Any] = {}
        exec(source, names)
        lines = [f"    assert candidate({', '.join(map(repr, args))}) == {names[name](*args)!r}" for args in inputs]
        rows.append({"name": name, "source": source, "test": "def check(candidate):\n" + "\n".join(lines)})
    return rows


def data_rows() -> list[dict[str, Any]]:
    """HumanEval and MBPP with their own solutions; nothing where there is no PREFRL_DATA.

    The MBPP file indents a solution otherwise than its docstring, so that the docstring is left out.
    """
    rows: list[dict[str, Any]] = []
    folder = Path(os.environ.get("PREFRL_DATA", "")) / "code"
    for file in ("humaneval.jsonl", "mbpp_sanitized.jsonl"):
        path = folder / file
        lines = path.read_text().splitlines() if "PREFRL_DATA" in os.environ and path.exists() else []
        for row in map(json.loads, lines):
            head = row["prompt"].partition("\n    '''")[0] + "\n" if file.startswith("mbpp") else row["prompt"]
            setup = "" if file.startswith("mbpp") else row["prompt"]
            rows.append(
                {
                    "name": row["entry_point"].strip(),
                    "source": head + row["canonical_solution"],
                    "test": row["test"],
                    "setup": setup,
                }
            )
    return rows


@pytest.mark.slow
def test_right_programs_pass_and_wrong_ones_fail(rollout: Any) -> None:
    rows = [{"setup": "", **row} for row in [*made_rows(), *data_rows()]]
    verifier = code("test", entry="name", prefix="setup", seconds=10.0, sandbox=BOX)
    right = verifier.verdicts([rollout(row["source"], **row) for row in rows])
    assert [row["name"] for row, verdict in zip(rows, right, strict=True) if verdict.score != 1.0] == []
    wrong = verifier.verdicts([rollout(returns_none(row["source"], row["name"]), **row) for row in rows])
    assert [row["name"] for row, verdict in zip(rows, wrong, strict=True) if verdict.score != 0.0] == []


def test_mutants_of_the_made_tasks_fail(rollout: Any) -> None:
    """Every small change of these programs shows in their cases, but for the few that change nothing."""
    verifier = code("test", entry="name", seconds=0.5, sandbox=BOX)
    survivors = []
    total = 0
    for row in made_rows():
        changed = list(mutants(row["source"]))
        scores = verifier.score([rollout(source, **row) for source in changed])
        total += len(changed)
        survivors += [source for source, score in zip(changed, scores, strict=True) if score.value != 0.0]
    assert total == 25
    assert len(survivors) <= 2, survivors


@pytest.mark.slow
def test_mutants_of_the_data_mostly_fail(rollout: Any) -> None:
    """One random mutant of each task; the tests of these sets are known to miss some."""
    rows = [{"setup": "", **row} for row in [*made_rows(), *data_rows()]]
    generator, pairs = random.Random(0), []
    for row in rows:
        changed = list(mutants(row["source"]))
        pairs += [(row, generator.choice(changed))] if changed else []
    verifier = code("test", entry="name", prefix="setup", seconds=1.0, sandbox=BOX)
    verdicts = verifier.verdicts([rollout(source, **row) for row, source in pairs])
    killed = sum(verdict.score == 0.0 for verdict in verdicts)
    print(f"{killed} of {len(pairs)} mutants fail")
    assert all(verdict.scored for verdict in verdicts)
    assert killed >= 0.75 * len(pairs)
