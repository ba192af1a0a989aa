"""Quantities: a number with a unit, compared in whatever unit it is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards.verifiers.common import Verifier, gold_of, gold_text
from prefrl.rewards.verifiers.numeric import numbers_in
from prefrl.rewards.verifiers.verdict import Verdict, failure, graded
from prefrl.types import Rollout

# Spellings of the web and of LaTeX, rewritten one after the other into one plain form.
_SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-")
_POWER = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_THOUSANDS = re.compile(r"(?<=\d)(?:[\u00a0\u2009\u202f]|\\,|\{,\})(?=\d{3}(?!\d))")
_PLAIN = [
    (re.compile(pattern), written)
    for pattern, written in (
        (r"\^?\s?\{?\\circ\}?|\\degree", "\u00b0"),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/(\2)"),
        (r"(?<=\d)/\((\d+)\)", r"/\1"),
        (r"\\times", "\u00d7"),
        (r"\\cdot|\u22c5", "\u00b7"),
        (r"\\mu\b\s?", "\u03bc"),
        (r"\\Omega\b\s?", "\u03a9"),
        (r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox|rm|boxed|left|right|quad|[,;:! ])|~", " "),
        (r"\\(?=[%$])|[${}]", ""),
        (r"(?<=[A-Za-z])\s?\*\*(?=-?\d)|(?<=[A-Za-z])\s\^", "^"),
        (r"\*\*", " "),  # emphasis
        (r"(?<=\d)\s1/(?=[A-Za-z])", " per "),
        (r"(?:\u00b0|\bdeg(?:ree)?s?\b)[^\S\n]*(?:C|Celsius|celsius|centigrade)\b", "degC"),
        (r"(?:\u00b0|\bdeg(?:ree)?s?\b)[^\S\n]*(?:F|Fahrenheit|fahrenheit)\b", "degF"),
        (r"(?:\u00b0|\bdeg(?:ree)?s?\b)[^\S\n]*(?:K|Kelvin|kelvin)\b", "kelvin"),
        (r"\u00b0", " degree"),
        (r"%|\bper cent\b", " percent"),
        (r"\bsq\b\.?", "square"),
        (r"\bmetric tons?\b", "tonne"),
        (r"[^\S\n]+", " "),
    )
]
# What may stand after a number as its unit: names joined by /, *, spaces and "per", with small powers. Anything else
# never reaches the parser, which would compute a tower of powers.
_NAME = r"(?:[A-Za-z\u03bc\u03a9\u00c5]+(?:\^?-?[1-9](?!\.?\d))?)"
_FACTOR = rf"(?:{_NAME}|\(\s?{_NAME}(?:\s?[*\u00b7/ ]\s?{_NAME}){{0,2}}\s?\))"
_UNIT = re.compile(
    rf"(?:[ ]|-(?=[A-Za-z]))?(?P<unit>(?:per )?{_FACTOR}(?:\s?[/*\u00b7] ?{_FACTOR}| (?:per )?{_FACTOR}){{0,3}})"
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    r"(?<![\w.^])(?<!\^-)(?<![A-Za-z]-)[-+\u2212]?"
    rf"(?:10 ?\^ ?[-+]?\d+|\d+ \d+/\d+|(?:{_DIGITS})(?:[eE][-+]?\d+| ?/ ?\d+| ?[x\u00d7*\u00b7] ?10 ?\^ ?[-+]?\d+)?)"
)
# Units by their letters which are words more often, and words after which even "in" is one.
_PROSE = frozenset({"a", "are", "as", "at", "in", "is", "on", "so"})
_IN = re.compile(r"in(?! (?:all|total|the|an?|this|that|each|every|order)\b)")
_ALONE = re.compile(r"\w+(?! ?\w)")
_WORDS = {
    "\u03a9": "ohm",
    "amp": "ampere",
    "amps": "ampere",
    "kgs": "kg",
    "kmh": "km/hour",
    "kmph": "km/hour",
    "mpg": "mile/gallon",
    "Nm": "N*m",
    "kNm": "kN*m",
}
_LONGEST = 60  # characters of a unit
_ROUNDING = 1e-12  # of a number, what converting it may leave


class Quantity(NamedTuple):
    """A number of some unit."""

    value: float
    unit: str


def quantities(text: str) -> list[Quantity]:
    """All quantities of a text in order; a number without a known unit is one of the unit ""."""
    return [quantity for quantity, _ in reversed(list(_backwards(_plain(text))))]


def units(column: str = "answer", *, rel_tol: float = 1e-3, abs_tol: float = 0.0, bare: bool = False) -> Verifier:
    """1 when the last quantity of the completion equals that of the gold column, converted to its unit.

    5 km equals 5,000 m and 72 km/h equals 20 m/s; 20 degC is not 20 degF, and a quantity of another dimension is wrong.
    Units are read in words, signs and LaTeX: `m/s^2`, `meters per second squared`, `\\mathrm{m/s^2}`. Capitals count
    where both are units (mW, MW). Not read: `5'` for feet, spaces between thousands.

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
        gold = _gold(str(gold_of(rollout, column, "units")))
        if gold is None:
            said_gold = rollout.prompt.columns[column]
            return failure(f"the column {column!r} is {said_gold!r}; expected one number with a unit: 9.8 m/s^2")
        last = next(_backwards(_plain(rollout.text)), None)
        if last is None:
            return graded(parsed=False, correct=False, evidence="no number")
        said, _ = last
        value = said.value if bare and not said.unit else _converted(said, gold.unit)
        apart = max(rel_tol * abs(gold.value), abs_tol, _ROUNDING * max(abs(said.value), abs(gold.value)))
        good = value is not None and abs(value - gold.value) <= apart
        return graded(
            parsed=True, correct=good, evidence=f"{said.value:g} {said.unit}, gold {gold.value:g} {gold.unit}"
        )

    return Verifier("units", check, version="2", gold=gold_text(column))


def _gold(text: str) -> Quantity | None:
    """The quantity that a text is, and nothing else."""
    plain = _plain(text).strip().rstrip(".")
    found = list(_backwards(plain))
    quantity, end = found[0] if len(found) == 1 else (None, 0)
    return quantity if quantity and quantity.unit and end == len(plain) else None


def _plain(text: str) -> str:
    """One spelling of what can be written in many ways."""
    text = _THOUSANDS.sub("", text).replace("\u00ba", "\u00b0")
    text = _POWER.sub(lambda power: "^" + power[0].translate(_SUPERSCRIPTS), text)
    text = unicodedata.normalize("NFKC", text).replace("\u2044", "/")
    for pattern, written in _PLAIN:
        text = pattern.sub(written, text)
    return text


def _backwards(text: str) -> Iterator[tuple[Quantity, int]]:
    """The quantities of a plain text from its end, and where each ends."""
    for number in reversed(list(_NUMBER.finditer(text))):
        written = f"1 x {number[0]}" if number[0].lstrip("-+\u2212").startswith("10^") else number[0]
        if values := numbers_in(written):
            unit, end = _unit_after(text, number.end())
            yield Quantity(values[0], unit), end


def _unit_after(text: str, at: int) -> tuple[str, int]:
    """The longest run of words from there on that is a unit, and where it ends: "5 km in" is 5 km."""
    after = _UNIT.match(text, at)
    words = after["unit"].split(" ") if after else []
    sure = next((i for i, word in enumerate(words) if i and word in _PROSE), len(words))
    if after and words[0] in _PROSE:
        follows = (_IN if words[0] == "in" else _ALONE).match(text, after.start("unit"))
        sure = 1 if follows else 0
    for count in range(sure, 0, -1):
        unit = " ".join(words[:count])
        if after and len(unit) <= _LONGEST and _known(unit) is not None:
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
    """The unit, or None where there is none of that name; in small letters where capitals mean nothing."""
    unit = re.sub(r"[^\W\d]+", lambda word: _WORDS.get(word[0], word[0]), unit)
    unit = re.sub(r"^per ", "1/", unit.replace("\u00b7", "*"))
    unit = re.sub(r"(?<=[^\W\d])\^?(-?\d)", r"**\1", unit)
    found = _parsed(unit)
    return _parsed(unit.lower()) if found is None else found


def _parsed(unit: str) -> Any:
    import pint

    wrong = pint.UndefinedUnitError, pint.errors.DefinitionSyntaxError
    try:
        return _registry().parse_units(unit)
    except (*wrong, ValueError, TypeError, AttributeError, KeyError):
        return None


@lru_cache(maxsize=1)
def _registry() -> Any:
    try:
        import pint
    except ImportError:
        raise RewardError("Units need pint. Type: pip install 'prefrl[verifiers]'") from None
    return pint.UnitRegistry(autoconvert_offset_to_baseunit=False, cache_folder=None)
