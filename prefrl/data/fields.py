"""What the columns of a judgement say: labels, ties, votes, strengths, weights. Wrong values raise `Problem`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from prefrl.data.reading import Problem
from prefrl.errors import DataError, did_you_mean

_FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


def verdict(row: Mapping[str, Any], columns: Collection[str]) -> tuple[float, float]:
    """Probability that `chosen` is the better one where one is, 1/2 where none is, and probability of a tie."""
    if "votes" in columns:
        return _count(row.get("votes"))
    tie = row.get("tie") if "tie" in columns else 0.0
    tie = number(_FLAGS.get(str(tie).strip().lower(), tie), "tie", 0.0, 1.0)
    label = row.get("label") if "label" in columns else 1.0
    if isinstance(label, str) and label.strip().lower() == "tie":
        label, tie = 0.5, 1.0
    preferred = number(label, "label", 0.0, 1.0)
    return (0.5 if tie == 1.0 else preferred), tie


def _count(votes: Any) -> tuple[float, float]:
    """1 and 2 name the answers in the order in which people saw them; `chosen` is the one that got more votes."""
    if not isinstance(votes, list | tuple) or not votes:
        raise Problem("votes is not a list of votes")
    said = [number(vote, "vote") for vote in votes]
    first, second, tied = said.count(1), said.count(2), said.count(0)
    if first + second + tied < len(said):
        raise Problem("a vote is not 1 or 2 (for one of the answers) or 0 (tie)")
    return (max(first, second) / (first + second) if first + second else 0.5), tied / len(said)


def margin_of(strength: Any, margins: Mapping[str, float], *, tied: bool) -> float:
    """The margin of a strength, 0 of a tie, whatever its strength.

    Args:
        strength: what the row says.
        margins: margin by `strength_key`.
        tied: whether the row is a tie.

    Raises:
        DataError: an unknown strength.
    """
    if tied:
        return 0.0
    if strength is None or strength == "":
        raise Problem("empty strength")
    key = strength_key(strength)
    if key not in margins:
        raise DataError(
            f"strength is {strength!r}; margins are given for {', '.join(map(str, margins))}."
            f"{did_you_mean(key, margins)} Add it to labels.strengths, or correct the row."
        )
    return margins[key]


def strength_key(strength: Any) -> str:
    """Words as they are, and one spelling for each number."""
    try:
        return f"{float(strength):g}"
    except (TypeError, ValueError):
        return str(strength).strip()


def weight_of(row: Mapping[str, Any], columns: Collection[str]) -> float:
    """How much the judgement counts."""
    return number(row.get("weight"), "weight", 0.0) if "weight" in columns else 1.0


def annotator_of(row: Mapping[str, Any]) -> str:
    """Who judged; empty for nobody in particular."""
    name = row.get("annotator")
    return "" if name is None else str(name).strip()


def number(value: Any, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within bounds."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise Problem(f"{name} is not a finite number")
    if not low <= found <= high:
        bounds = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
        raise Problem(f"{name} is not {bounds}")
    return found


def flag(value: Any) -> bool:
    """A label that is true or false."""
    found = _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise Problem("label is not true or false")
    return found
