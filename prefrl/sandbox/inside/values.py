"""Python values as JSON and back, without pickle: only plain data crosses, and crosses exactly.

None, bool, int, float and str are themselves and a list is an array. Everything else is an object with one key that
names
its type: `{"tuple": [...]}`, `set`, `frozenset`, `dict` (pairs), `bytes` (hex), `complex`, `float` (nan, inf, -inf),
    `int` (hex, where it is long). What is no plain data becomes `{"object": [number, type name]}`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEPTH = 100  # of values within values
ALIKE = 100  # keys with the same hash in one set or dict
LONG = 4000  # bits: longer integers travel as hex, whose conversion takes linear time


class ValueFault(ValueError):
    """A value that cannot cross: too deep, or nothing that `encode` writes."""


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """Something that is no plain data. Equal to itself alone: nobody asks it what it equals."""

    number: int
    type: str


def encode(value: Any, keep: Callable[[Any], int] | None = None, depth: int = 0) -> Any:
    """`value` as JSON data. Subclasses count as their base; `keep` gives a number to what is no plain data.

    Raises:
        ValueFault: more than 100 levels deep, or no plain data and no `keep`.
    """
    if depth > DEPTH:
        raise ValueFault(f"a value of more than {DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    for base, write in _SCALARS:
        if isinstance(value, base):
            return write(value)
    if isinstance(value, dict):
        return {"dict": [[encode(k, keep, depth + 1), encode(v, keep, depth + 1)] for k, v in value.items()]}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            items = [encode(item, keep, depth + 1) for item in value]
            return items if kind is list else {name: items}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), keep, depth + 1)
    if keep is None:
        raise ValueFault(f"a {type(value).__name__}, which is no plain data")
    return {"object": [keep(value), type(value).__name__[:100]]}


def decode(data: Any, find: Callable[[int, str], Any] = Opaque, depth: int = 0) -> Any:
    """What `encode` wrote; `find` makes something of the number and type name of what is no plain data.

    Raises:
        ValueFault: anything that `encode` does not write, and more than 100 levels.
    """
    if depth > DEPTH:
        raise ValueFault(f"a value of more than {DEPTH} levels")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [decode(item, find, depth + 1) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueFault("an object that does not have exactly one key")
    (name, body), *_ = data.items()
    try:
        if name == "dict":
            keys = _spread([decode(k, find, depth + 1) for k, _ in body])
            return dict(zip(keys, (decode(v, find, depth + 1) for _, v in body), strict=True))
        if name in _SEQUENCES and name != "list":
            items = [decode(item, find, depth + 1) for item in body]
            return tuple(items) if name == "tuple" else _SEQUENCES[name](_spread(items))
        return find(int(body[0]), str(body[1])) if name == "object" else _READ[name](body)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueFault(f"no value: {type(error).__name__}: {error}"[:300]) from None


def read_line(line: bytes) -> Any:
    """One line of JSON, whoever wrote it; raises ValueFault for anything else, however deep or strange it is."""
    try:
        return json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueFault(f"no line of JSON: {type(error).__name__}: {error}"[:300]) from None


def write_line(data: Any) -> bytes:
    """JSON data as one line; the text itself never holds a line break."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _spread(items: list[Any]) -> list[Any]:
    """The items, unless they were chosen to have one hash: a set of them would take time in their square."""
    if max(Counter(map(hash, items)).values(), default=0) > ALIKE:
        raise ValueFault(f"more than {ALIKE} keys of one hash")
    return items


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _write_int(value: int) -> Any:
    plain = int.__int__(value)
    return {"int": hex(plain)} if plain.bit_length() > LONG else plain


def _write_float(value: float) -> Any:
    plain = float.__float__(value)
    return plain if math.isfinite(plain) else {"float": str(plain)}


_SCALARS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (int, _write_int),
    (float, _write_float),
    (str, str.__str__),
    ((bytes, bytearray), lambda value: {"bytes": bytes(value).hex()}),
    (complex, lambda value: {"complex": [_write_float(value.real), _write_float(value.imag)]}),
)
_SEQUENCES: dict[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_READ: dict[str, Callable[[Any], Any]] = {
    "int": lambda body: int(body, 16),
    "float": float,
    "bytes": bytes.fromhex,
    "complex": lambda body: complex(decode(body[0]), decode(body[1])),
}
