"""The labelled pairs of mathematical answers, and what the verifier makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefrl.rewards.verifiers.math import Case, judge_all
from prefrl.rewards.verifiers.math.compare import Rules
from prefrl.rewards.verifiers.math.extract import gold_answer
from prefrl.rewards.verifiers.verdict import Verdict

FOLDER = Path(__file__).parent / "rewards" / "verifiers"


def pairs(name: str) -> list[dict[str, Any]]:
    """The rows of `math_corpus` or `math_heldback`."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def judged(rows: Sequence[dict[str, Any]]) -> list[Verdict]:
    """The verdicts of rows."""
    return judge_all([Case((gold_answer(row["gold"]),), row["text"], Rules(**row.get("options", {}))) for row in rows])


def says(gold: str, text: str, **rules: Any) -> float | None:
    """The score of one completion."""
    return judge_all([Case((gold,), text, Rules(**rules))])[0].score
