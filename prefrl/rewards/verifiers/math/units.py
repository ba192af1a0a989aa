"""Units of measurement: dimension and size, as exact fractions of the base units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_TABLE = """
length m 1: m meter meters metre metres
length m 1/100: cm centimeter centimeters centimetre centimetres
length m 1/1000: mm millimeter millimeters millimetre millimetres
length m 1/10: dm
length m 1000: km kilometer kilometers kilometre kilometres
length m 127/5000: in inch inches
length m 381/1250: ft foot feet
length m 1143/1250: yd yard yards
length m 201168/125: mi mile miles
mass g 1: g gram grams
mass g 1/1000: mg milligram milligrams
mass g 1000: kg kilogram kilograms
mass g 1000000: ton tons tonne tonnes
mass g 45359237/100000: lb lbs pound pounds
mass g 45359237/1600000: oz ounce ounces
time s 1: s sec secs second seconds
time s 60: min mins minute minutes
time s 3600: h hr hrs hour hours
time s 86400: day days
time s 604800: week weeks
time y 1: year years yr yrs
time mo 1: month months
volume L 1: L l liter liters litre litres
volume L 1/1000: mL ml milliliter milliliters millilitre millilitres
volume gal 1: gal gallon gallons
money $ 1: dollar dollars usd USD buck bucks
money $ 1/100: cent cents
money eur 1: euro euros EUR
speed m/s 1397/3125: mph
speed m/s 5/18: kph
angle deg 1: degree degrees deg
angle rad 1: rad radian radians
energy J 1: J joule joules
energy J 1000: kJ
power W 1: W watt watts
power W 1000: kW
force N 1: N newton newtons
pressure Pa 1: Pa pascal pascals
current A 1: A ampere amperes
voltage V 1: V volt volts
frequency Hz 1: Hz hertz
amount mol 1: mol mole moles
"""
_WORDS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_POWER = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of base units, `dimension` ((base, exponent), ...), times `size`."""

    dimension: tuple[tuple[str, int], ...]
    size: Fraction


def _read_table() -> dict[str, tuple[str, Fraction]]:
    table = {}
    for line in _TABLE.strip().splitlines():
        head, _, spellings = line.partition(":")
        _, base, size = head.split()
        table.update(dict.fromkeys(spellings.split(), (base, Fraction(size))))
    return table


_UNITS = _read_table()
_PIECE = re.compile(r"([A-Za-z$]+)\s*(?:\^\s*\{?\s*(-?[0-9])\s*\}?)?")
_TEXT = re.compile(r"[A-Za-z^{}0-9/* .\\$-]+")
_SEPARATORS = re.compile(r"\s*(/|\bper\b|\*|\\cdot)\s*")


def unit_of(text: str) -> Unit | None:
    """The unit that a text spells: `cm`, `km/h`, `square feet`, `m^2`, `miles per hour`; None if it spells none."""
    if not _TEXT.fullmatch(text):
        return None
    found: dict[str, int] = {}
    size, sign = Fraction(1), 1
    for piece in _SEPARATORS.split(text.strip()):
        if piece in ("/", "per"):
            sign = -1
        elif piece not in ("*", r"\cdot"):
            parts = _pieces(piece)
            if parts is None:
                return None
            for base, factor, exponent in parts:
                found[base] = found.get(base, 0) + sign * exponent
                size *= factor ** (sign * exponent)
    dimension = tuple(sorted((base, exponent) for base, exponent in found.items() if exponent))
    return Unit(dimension, size) if dimension else None


def _pieces(text: str) -> list[tuple[str, Fraction, int]] | None:
    parts: list[tuple[str, Fraction, int]] = []
    raise_next = 1
    at = 0
    text = text.strip()
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            return None
        word, at = match[1], match.end()
        while at < len(text) and text[at] in " .":
            at += 1
        if word in _POWER and (parts or word not in ("squared", "cubed")):
            if word in ("squared", "cubed"):
                parts[-1] = (*parts[-1][:2], _POWER[word])
            else:
                raise_next = _POWER[word]
            continue
        known = _UNITS.get(word) or _UNITS.get(word.lower() if len(word) > 2 else word)
        if known is None:
            return None
        parts.append((*known, int(match[2] or raise_next)))
        raise_next = 1
    return parts


def multiplier(text: str) -> int | None:
    """What a number word such as `million` multiplies by."""
    return _WORDS.get(text.strip().lower())
