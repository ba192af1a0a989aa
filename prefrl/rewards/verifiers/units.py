"""Quantities: a number with a unit, compared in whatever unit it is written."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.verifiers.common import Verifier, gold_of, gold_text
from prefrl.rewards.verifiers.numeric import numbers_in
from prefrl.rewards.verifiers.verdict import Verdict, failure, graded
from prefrl.types import Rollout

# What may stand after a number as its unit: names joined by /, *, ^ and "per", with small powers. Anything else never
# reaches the parser, which would compute a tower of powers.
_NAME = r"(?:[A-Za-z\u00b5\u03bc\u03a9\u00b0%\u00c5]+(?:(?:\^|\*\*)?-?[1-9\u00b2\u00b3](?!\d))?)"
_UNIT = re.compile(rf"\s?(?P<unit>{_NAME}(?:\s?[/*\u00b7\u22c5]\s?{_NAME}|\s(?:per\s)?{_NAME}){{0,3}})")
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?/\s?\d+)?|\.\d+"
_NUMBER = re.compile(rf"(?<![\w.])[-+\u2212]?(?:{_DIGITS})")
_PROSE = frozenset({"a", "are", "as", "at", "in", "is", "on", "so"})  # units by their letters, words after a unit
_SPELLINGS = {
    "°C": "degC",
    "°F": "degF",
    "°": "degree",
    "%": "percent",
    "²": "**2",
    "³": "**3",
    "·": "*",
    "⋅": "*",
    "^": "**",
}
_LONGEST = 40  # characters of a unit


class Quantity(NamedTuple):
    """A number of some unit."""

    value: float
    unit: str


def quantities(text: str) -> list[Quantity]:
    """All quantities of a text in order; a number without a known unit is one of the unit ""."""
    found: list[Quantity] = []
    at = 0
    while number := _NUMBER.search(text, at):
        at = number.end()
        if values := numbers_in(number[0]):
            unit, at = _unit_after(text, at)
            found.append(Quantity(values[0], unit))
    return found


def units(column: str = "answer", *, rel_tol: float = 1e-3, abs_tol: float = 0.0, bare: bool = False) -> Verifier:
    """1 when the last quantity of the completion equals that of the gold column, converted to its unit.

    5 km equals 5,000 m and 72 km/h equals 20 m/s; 20 degC is not 20 degF, and a quantity of another dimension is wrong.

    Args:
        column: dataset column with a quantity, such as `9.8 m/s^2`.
        rel_tol, abs_tol: how far apart equal quantities may be, `max(rel_tol * |gold|, abs_tol)` in the gold unit.
        bare: a number without a unit counts as one in the gold unit.

    Raises:
        ConfigError: a negative tolerance.
        RewardError: pint is not installed.
    """
    if not (rel_tol >= 0 and abs_tol >= 0):
        raise ConfigError(f"units: rel_tol={rel_tol}, abs_tol={abs_tol}; expected numbers >= 0")

    def check(rollout: Rollout) -> Verdict:
        gold_text = str(gold_of(rollout, column, "units"))
        golds = quantities(gold_text)
        if len(golds) != 1 or not golds[0].unit:
            return failure(f"the column {column!r} is {gold_text!r}; expected one number with a unit: 9.8 m/s^2")
        found = quantities(rollout.text)
        if not found:
            return graded(parsed=False, correct=False, evidence="no number")
        gold, said = golds[0], found[-1]
        value = said.value if bare and not said.unit else _converted(said, gold.unit)
        good = value is not None and math.isclose(
            value, gold.value, rel_tol=0, abs_tol=max(rel_tol * abs(gold.value), abs_tol)
        )
        return graded(
            parsed=True, correct=good, evidence=f"{said.value:g} {said.unit}, gold {gold.value:g} {gold.unit}"
        )

    return Verifier("units", check, gold=gold_text(column))


def _unit_after(text: str, at: int) -> tuple[str, int]:
    """The longest run of words from there on that is a unit, and where it ends: "5 km in" is 5 km."""
    after = _UNIT.match(text, at)
    words = after["unit"].split(" ") if after else []
    sure = next((i for i, word in enumerate(words) if i and word in _PROSE), len(words))
    for count in range(sure, 0, -1):
        unit = " ".join(words[:count])
        if after and _known(unit) is not None:
            return unit, after.start("unit") + len(unit)
    return "", at


def _converted(quantity: Quantity, unit: str) -> float | None:
    """The number in another unit; None where the dimensions differ."""
    if not quantity.unit:
        return None
    import pint

    try:
        source = _registry().Quantity(quantity.value, _known(quantity.unit))
        return float(source.to(_known(unit)).magnitude)
    except (pint.DimensionalityError, pint.OffsetUnitCalculusError, OverflowError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _known(unit: str) -> Any:
    """The unit, or None where there is none of that name."""
    if len(unit) > _LONGEST:
        return None
    for written, spelled in _SPELLINGS.items():
        unit = unit.replace(written, spelled)
    unit = re.sub(r"(?<=[A-Za-z])\s?(-?\d)$", r"**\1", unit)
    import pint

    try:
        return _registry().parse_units(unit)
    except (
        pint.UndefinedUnitError,
        pint.errors.DefinitionSyntaxError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
    ):
        return None


@lru_cache(maxsize=1)
def _registry() -> Any:
    try:
        import pint
    except ImportError:
        raise RewardError("Units need pint. Type: pip install 'prefrl[verifiers]'") from None
    return pint.UnitRegistry(autoconvert_offset_to_baseunit=False, cache_folder=None)
