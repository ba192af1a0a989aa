"""Numbers in text, and whether the right one is among them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from numbers import Real
from typing import Any

from prefrl.errors import ConfigError
from prefrl.rewards.verifiers.common import Verifier, gold_of, gold_text
from prefrl.rewards.verifiers.verdict import Verdict, failure, graded
from prefrl.types import Rollout

PICKS = ("last", "first", "only")

_MINUS = str.maketrans({"\u2212": "-", "\ufe63": "-", "\uff0d": "-"})

# A minus after a word, a closing bracket or % joins ("3-4", "x-5"); anywhere else it is a sign.
_NUMBER = re.compile(
    r"""
    (?P<sign>(?<![\w)\]}%-])[-+])?
    (?:[$€£¥]\s?)?
    (?P<sign2>(?<=[$€£¥])[-+])?
    (?<![A-Za-z_0-9])(?<![0-9]\.)
    (?:
        (?<!/)(?:(?P<whole>[0-9]{1,3})\ )?(?P<num>[0-9]+)\s?/\s?(?P<den>[0-9]+)(?![0-9/]|\.[0-9])
      | (?P<mantissa>
            (?:[1-9][0-9]{0,2}(?:[,\u00a0\u2009\u202f][0-9]{3})+ | [0-9]+) (?:\.[0-9]+)?
          | (?<!\.)\.[0-9]+
        )
        (?!\.?[0-9])
        (?:
            [eE](?P<exp>[-+]?[0-9]+)(?!\w)
          | \s*(?:[x\u00d7*\u00b7]|\\times|\\cdot)\s*10\s*\^\s*\{?(?P<power>[-+]?[0-9]+)\}?
        )?
    )
    """,
    re.VERBOSE,
)
_SEPARATORS = re.compile("[,\u00a0\u2009\u202f]")


def numbers_in(text: str) -> list[float]:
    """All numbers of a text, in order.

    Read as one number: `1,234.5`, `-$5`, `.5`, `3/4`, `1 1/2`, `1.5e3`, `1.5 x 10^3`. A currency sign or
    `%` is dropped (50% is 50). `3-4` is 3 and 4. Digits inside words, versions such as 1.2.3, divisions by
    zero and numbers beyond the range of a float are not numbers.
    """
    matches = _NUMBER.finditer(text.translate(_MINUS))
    return [number for match in matches for number in _values(match) if math.isfinite(number)]


def _values(match: re.Match[str]) -> Iterator[float]:
    sign = -1.0 if "-" in (match["sign"], match["sign2"]) else 1.0
    if match["mantissa"]:
        exponent = match["exp"] or match["power"] or "0"
        yield sign * float(f"{_SEPARATORS.sub('', match['mantissa'])}e{exponent}")
        return
    whole, num, den = float(match["whole"] or 0), float(match["num"]), float(match["den"])
    if match["whole"] and not 0 < num < den:  # "5 10/2": a number beside a fraction, not a mixed number
        yield sign * whole
        sign, whole = 1.0, 0.0
    if den:
        yield sign * (whole + num / den)


def numeric(column: str = "answer", *, rel_tol: float = 1e-6, abs_tol: float = 1e-9, pick: str = "last") -> Verifier:
    """1 when the picked number of the completion equals the number in the gold column, else 0.

    Equal means `|a - gold| <= max(rel_tol * max(|a|, |gold|), abs_tol)`: with the defaults 1000000 and
    1000001 are equal; `rel_tol=0` compares exactly.

    Args:
        column: dataset column with a number, or a text with exactly one; of "... #### 42" (GSM8K) what
            follows the last ####.
        pick: "last" or "first" number of the text; "only" wants exactly one.

    Raises:
        ConfigError: unknown `pick`, or a negative tolerance.
    """
    if pick not in PICKS:
        raise ConfigError(f"numeric: pick={pick!r}; expected one of {', '.join(PICKS)}")
    if not (rel_tol >= 0 and abs_tol >= 0):
        raise ConfigError(f"numeric: rel_tol={rel_tol}, abs_tol={abs_tol}; expected numbers >= 0")

    def check(rollout: Rollout) -> Verdict:
        gold = _gold_number(gold_of(rollout, column, "numeric"))
        if isinstance(gold, str):
            return failure(f"the column {column!r} {gold}")
        found = numbers_in(rollout.text)
        if not found or (pick == "only" and len(found) > 1):
            return graded(parsed=False, correct=False)
        answer = found[0] if pick == "first" else found[-1]
        return graded(parsed=True, correct=math.isclose(answer, gold, rel_tol=rel_tol, abs_tol=abs_tol))

    return Verifier("numeric", check, gold=gold_text(column))


def _gold_number(gold: Any) -> float | str:
    """The gold number, or what is wrong with it."""
    if isinstance(gold, Real) and not isinstance(gold, bool):
        return float(gold) if math.isfinite(gold) else f"is {gold}, not a finite number"
    if not isinstance(gold, str):
        return f"is {gold!r}; expected a number, or a text with one"
    found = numbers_in(gold.rpartition("####")[2])
    return found[0] if len(found) == 1 else f"holds {len(found)} numbers, expected one: {gold!r}"
