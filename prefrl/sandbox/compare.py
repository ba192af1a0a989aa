"""Whether what a submission returned is what was expected. Runs outside, on plain data that was decoded here."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.sandbox.inside.values import Opaque

TYPES = ("json", "exact", "python")
PAIRWISE = 1000
_ORDERED = (list, tuple)
_UNORDERED = (set, frozenset)


@dataclass(frozen=True, slots=True)
class Same:
    """Equality of plain data. NaN equals NaN under every rule: a case that expects it can be passed.

    types      json: what JSON cannot tell apart is the same, 1 and 1.0, a list and a tuple, and the keys 1 and "1";
               exact: the type must be the same at every level;
               python: as `==` has it, for which True is 1 as well.
               A bool is no number but under `python`.
    rtol, atol numbers of which one is a float may differ by max(rtol * the larger, atol)

    Raises:
        ConfigError: another rule, or a tolerance that is not finite and 0 or more.
    """

    types: str = "json"
    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        if self.types not in TYPES:
            raise ConfigError(
                f"compare={self.types!r}; expected one of {', '.join(TYPES)}.{did_you_mean(self.types, TYPES)}"
            )
        if not (0 <= self.rtol < math.inf and 0 <= self.atol < math.inf):
            raise ConfigError(f"rtol={self.rtol}, atol={self.atol}; expected finite numbers of 0 or more")

    def __call__(self, got: Any, expected: Any) -> bool:
        """Whether the two are the same. Something that is no plain data is never the same as anything."""
        if isinstance(got, Opaque) or isinstance(expected, Opaque):
            return False
        if self.types == "exact" and type(got) is not type(expected):
            return False
        if isinstance(got, int | float | complex) and isinstance(expected, int | float | complex):
            return self._numbers(got, expected)
        if isinstance(got, dict) and isinstance(expected, dict):
            return self._dicts(got, expected)
        if isinstance(got, _ORDERED) and isinstance(expected, _ORDERED):
            alike = self.types == "json" or type(got) is type(expected)
            return alike and len(got) == len(expected) and all(map(self, got, expected))
        if isinstance(got, _UNORDERED) and isinstance(expected, _UNORDERED):
            return len(got) == len(expected) and self._sets(got, expected)
        return type(got) is type(expected) and bool(got == expected)

    def _numbers(self, got: complex, expected: complex) -> bool:
        if self.types != "python" and isinstance(got, bool) != isinstance(expected, bool):
            return False
        if got != got or expected != expected:
            return got != got and expected != expected
        if got == expected:
            return True
        if isinstance(got, int) and isinstance(expected, int):
            return False
        try:
            return cmath.isclose(got, expected, rel_tol=self.rtol, abs_tol=self.atol)
        except OverflowError:  # an integer beyond all floats
            return False

    def _sets(self, got: Any, expected: Any) -> bool:
        wanted = {item: item for item in expected}
        if all(item in wanted and self(item, wanted[item]) for item in got):
            return True
        pairwise = len(expected) <= PAIRWISE  # for NaN and tolerances; takes time in the square
        return pairwise and all(any(self(item, other) for item in got) for other in expected)

    def _dicts(self, got: dict[Any, Any], expected: dict[Any, Any]) -> bool:
        if self.types == "json":
            got, expected = _named(got), _named(expected)
        if len(got) != len(expected):
            return False
        if self.types == "exact" and {(type(key), key) for key in got} != {(type(key), key) for key in expected}:
            return False
        return all(key in got and self(got[key], value) for key, value in expected.items())


def _named(items: dict[Any, Any]) -> dict[Any, Any]:
    """Keys as JSON would have them; two that become the same stay apart."""
    named = {key if isinstance(key, str) else repr(key): value for key, value in items.items()}
    return named if len(named) == len(items) else items
