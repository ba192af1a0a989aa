"""How fast labels come in, and when they will be all: pure functions of the times at which they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prefrl.data.store.records import ItemState

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Labels until now.

    per_hour  labels an hour, over the hours of the last seven days in which anybody labelled; 0 without any
    """

    total: int
    last_hour: int
    last_day: int
    per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Where the items stand: open and wanted, open with all their labels, closed, or with the reviewers.

    wanted  labels that open items ask for
    given   of these, those that are there
    leases  items that somebody has open now
    """

    open: int
    complete: int
    closed: int
    adjudication: int
    wanted: int
    given: int
    leases: int

    @property
    def items(self) -> int:
        """All items."""
        return self.open + self.complete + self.closed + self.adjudication

    @property
    def left(self) -> int:
        """Labels that are still wanted."""
        return self.wanted - self.given


def pace(times: Sequence[float], now: float) -> Pace:
    """The pace of labels that came at these epoch seconds."""
    week = [at for at in times if now - 7 * DAY < at <= now]
    hours = {int(at // HOUR) for at in week}
    return Pace(
        total=len(times),
        last_hour=sum(at > now - HOUR for at in week),
        last_day=sum(at > now - DAY for at in week),
        per_hour=len(week) / len(hours) if hours else 0.0,
    )


def columns(times: Iterable[float], now: float, *, step: float, count: int) -> list[tuple[float, int]]:
    """Beginning and number of labels of each of the last `count` spans of `step` seconds, the oldest first."""
    start = now - count * step
    found = Counter(int((at - start) // step) for at in times if start <= at <= now)
    found[count - 1] += found.pop(count, 0)  # what came this very moment
    return [(start + k * step, found[k]) for k in range(count)]


def tally(states: Iterable[ItemState]) -> Tally:
    """Where these items stand."""
    found: Counter[str] = Counter()
    wanted = given = leases = 0
    for state in states:
        found[standing(state)] += 1
        leases += state.leases > 0
        if state.state == "open":
            wanted += state.overlap
            given += min(state.labels, state.overlap)
    return Tally(
        open=found["open"],
        complete=found["complete"],
        closed=found["closed"],
        adjudication=found["adjudication"],
        wanted=wanted,
        given=given,
        leases=leases,
    )


def standing(state: ItemState) -> str:
    """The state in words that tell open items that have all their labels from the others."""
    return "complete" if state.state == "open" and state.labels >= state.overlap else state.state


def by_kind(states: Mapping[str, ItemState]) -> dict[str, Tally]:
    """Where the items of each kind stand."""
    kinds: dict[str, list[ItemState]] = {}
    for state in states.values():
        kinds.setdefault(state.kind, []).append(state)
    return {kind: tally(found) for kind, found in sorted(kinds.items())}
