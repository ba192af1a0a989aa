"""Rows in, items out, and a count of every row that could not be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from prefrl.data.tables import Table
from prefrl.errors import ConfigError, DataError

T = TypeVar("T")


class Problem(Exception):
    """Why one row cannot be used: a reason without the row's content, so that equal ones count together."""


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What was kept, in the order of the source, and how much was dropped for which reason."""

    items: list[T]
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Rows there were before any was dropped."""
        return len(self.items) + sum(self.dropped.values())

    def summary(self) -> str:
        """One line for people, such as `kept 98 of 100: 1 empty completion, 1 chosen equals rejected`."""
        kept = f"kept {len(self.items)} of {self.total}"
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
        return f"{kept}: {reasons}" if reasons else kept


def collect(table: Table, convert: Callable[[dict[str, Any]], T], max_bad_fraction: float) -> Read[T]:
    """Convert every row; rows that raise `Problem` are counted by reason.

    Raises:
        DataError: more than `max_bad_fraction` of the rows are bad, or all of them.
    """
    check_fraction("max_bad_fraction", max_bad_fraction)
    items: list[T] = []
    dropped: dict[str, int] = {}
    first: dict[str, int] = {}
    for number, row in enumerate(table.rows, start=1):
        try:
            items.append(convert(row))
        except Problem as problem:
            reason = str(problem)
            dropped[reason] = dropped.get(reason, 0) + 1
            first.setdefault(reason, number)
    bad, total = sum(dropped.values()), len(table.rows)
    if bad and (not items or bad > max_bad_fraction * total):
        reasons = ", ".join(f"{n} {reason} (first: row {first[reason]})" for reason, n in dropped.items())
        raise DataError(
            f"{table.origin}: {bad} of {total} rows cannot be used, at most {max_bad_fraction:.0%} may "
            f"be dropped: {reasons}. Repair or remove them{', or raise data.max_dropped_fraction.' if items else '.'}"
        )
    return Read(items, dropped)


def keep_within(
    items: Sequence[T], lengths: Sequence[int], limit: int, what: str, *, max_dropped_fraction: float = 0.0
) -> Read[T]:
    """Keep the items of at most `limit` tokens; nothing is ever cut.

    Args:
        items: what was encoded.
        lengths: tokens of each item.
        limit: the most tokens an item may have.
        what: what is measured, for the message: `prompt`, `prompt and completion`.
        max_dropped_fraction: the share of items that may be dropped for being too long.

    Raises:
        DataError: a larger share is too long, or all items are.
    """
    check_fraction("max_dropped_fraction", max_dropped_fraction)
    kept = [item for item, length in zip(items, lengths, strict=True) if length <= limit]
    dropped = len(items) - len(kept)
    if not dropped:
        return Read(kept)
    if not kept or dropped > max_dropped_fraction * len(items):
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        raise DataError(
            f"{dropped} of {len(items)} are longer than the limit of {limit} tokens for {what}, at most "
            f"{max_dropped_fraction:.0%} may be dropped; the longest has {lengths[longest]} (number "
            f"{longest + 1}). Raise the limit to {lengths[longest]}, or shorten those rows; none of them is cut, "
            "a completion never is."
        )
    return Read(kept, {f"{what} longer than {limit} tokens": dropped})


def check_fraction(name: str, value: float) -> None:
    """Raise `ConfigError` unless 0 <= value <= 1."""
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} is {value}; it is a share between 0 and 1, such as 0.05.")
