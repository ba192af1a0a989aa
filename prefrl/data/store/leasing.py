"""Giving items to people for a while, within a transaction that writes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, Text, bindparam, func, select, update

from prefrl.data.store.labels import place_of_person
from prefrl.data.store.queue import DISPUTED, GOLD, LEFT, LEFT_DISPUTED, LEFT_MINE, LEFT_TAKEN, WANTED
from prefrl.data.store.records import REVIEWERS, Assignment, Progress
from prefrl.data.store.schema import AnyRow, assignments, items, people
from prefrl.data.store.settings import Project, project_of
from prefrl.data.store.texts import is_exchanged, storable

MOST_LEASES = 16  # of a person: nobody keeps the queue from the others
PLACE = [assignments.c[name] for name in ("id", "item", "person", "exchanged", "state", "lease_until", "version")]
_person: BindParameter[str] = bindparam("person", type_=Text())
_SWEEP = (
    update(assignments)
    .where(assignments.c.state == "leased", assignments.c.lease_until <= bindparam("now"))
    .values(state="expired")
)
_ROLE = select(people.c.role).where(people.c.name == _person, people.c.active)
_HELD = (
    select(*PLACE, items.c.state.label("item_state"))
    .join(items, items.c.id == assignments.c.item)
    .where(assignments.c.person == _person, assignments.c.state == "leased")
    .order_by(assignments.c.leased_at, items.c.number)
)
_TALLY = (
    select(assignments.c.state, assignments.c.outcome, func.count())
    .where(assignments.c.person == _person)
    .group_by(assignments.c.state, assignments.c.outcome)
)
_EXTEND = update(assignments).where(assignments.c.id == bindparam("of")).values(lease_until=bindparam("until"))
_LEASE = _EXTEND.values(state="leased", leased_at=bindparam("at"))
_RELEASE = update(assignments).where(assignments.c.id == bindparam("of")).values(state="released")


class Tally(NamedTuple):
    """How many items a person labelled, skipped, and was ever given."""

    done: int
    skipped: int
    given: int


def lease(
    connection: Connection, project: Project, person: str, count: int, held: Collection[str], now: float
) -> list[Assignment]:
    """Assignments of a person that are not held yet: first those that are still theirs, then further ones."""
    sweep(connection, now)
    until = now + 60.0 * project.settings.lease_minutes
    mine = [row for row in connection.execute(_HELD, {"person": person}).all() if not _is_over(connection, row)]
    resumed = [row for row in mine if row.id not in held][:count]
    renewed = [*resumed, *(row for row in mine if row.id in held)]
    if renewed:
        connection.execute(_EXTEND, [{"of": row.id, "until": until} for row in renewed])
    found = [to_assignment(row, lease_until=until) for row in resumed]
    tally = tally_of(connection, person)
    room = min(count - len(resumed), MOST_LEASES - len(mine))
    if project.settings.quota:
        room = min(room, project.settings.quota - tally.done - len(mine))
    chosen = _choose(connection, project, person, room, tally.given, now) if room > 0 else []
    return found + [_take(connection, project.secret, item, person, now, until) for item in chosen]


def sweep(connection: Connection, now: float) -> None:
    """End the leases whose time is over."""
    connection.execute(_SWEEP, {"now": now})


def release(connection: Connection, place: str) -> None:
    """End a lease before its time."""
    connection.execute(_RELEASE, {"of": place})


def extend(connection: Connection, place: str, now: float, until: float) -> None:
    """Begin a lease, or let it last longer."""
    connection.execute(_LEASE, {"of": place, "at": now, "until": until})


def role_of(connection: Connection, person: str) -> str:
    """The role of somebody; those without an account label like everybody."""
    return str(connection.execute(_ROLE, {"person": person}).scalar_one_or_none() or "annotator")


def tally_of(connection: Connection, person: str) -> Tally:
    """What a person did until now."""
    rows = connection.execute(_TALLY, {"person": person}).all()
    labelled = [(outcome, count) for state, outcome, count in rows if state == "done"]
    skipped = sum(count for outcome, count in labelled if outcome == "skip")
    done = sum(count for outcome, count in labelled) - skipped
    return Tally(done, skipped, sum(count for _, _, count in rows))


def progress_of(connection: Connection, project: Project, person: str, now: float) -> Progress:
    """How far a person is; see `Progress`."""
    tally, settings = tally_of(connection, person), project.settings
    about = about_room(connection, person, now)
    everything, mine, taken, disputed = (
        int(connection.execute(wanted, about).scalar_one()) for wanted in (LEFT, LEFT_MINE, LEFT_TAKEN, LEFT_DISPUTED)
    )
    left = everything - mine - taken
    if disputed and role_of(connection, person) in REVIEWERS:
        left += disputed
    if settings.quota:
        left = min(left, max(0, settings.quota - tally.done))
    total = tally.done + tally.skipped + left
    return Progress(done=tally.done, skipped=tally.skipped, left=left, total=total, quota=settings.quota)


def about_room(connection: Connection, person: str, now: float) -> dict[str, Any]:
    """What the conditions of `queue` ask for."""
    skips = project_of(connection).settings.skip_after
    return {"person": storable(person), "now": now, "skip_after": skips}


def to_assignment(row: AnyRow, **changed: Any) -> Assignment:
    """The assignment of a row that has the columns `PLACE`."""
    return Assignment(**{column.name: getattr(row, column.name) for column in PLACE} | changed)


def _is_over(connection: Connection, row: AnyRow) -> bool:
    """Whether a lease is of an item that was closed in the meantime; it ends then."""
    if row.item_state == "closed":
        release(connection, row.id)
    return bool(row.item_state == "closed")


def _choose(connection: Connection, project: Project, person: str, room: int, given: int, now: float) -> list[str]:
    """Items to give: what reviewers must settle, then the queue with its share of known answers."""
    about = {**about_room(connection, person, now), "limit": room}
    chosen: list[str] = []
    if role_of(connection, person) in REVIEWERS:
        chosen += connection.execute(DISPUTED, about).scalars()
    wanted = list(connection.execute(WANTED, about).scalars())
    if not wanted:  # known answers alone are no work
        return chosen
    share, places = project.settings.gold_share, range(len(chosen), room)
    drawn = [_fraction(f"{project.secret}|{person}|{given + place}") < share for place in places]
    known = list(connection.execute(GOLD, about).scalars()) if any(drawn) else []
    return chosen + _mixed(wanted, known, drawn)


def _mixed(wanted: Sequence[str], known: Sequence[str], drawn: Sequence[bool]) -> list[str]:
    """One item for each draw: of the known answers where it says so, and of the queue otherwise."""
    mixed: list[str] = []
    for is_known in drawn:
        first, second = (known, wanted) if is_known else (wanted, ())
        item = next((item for item in (*first, *second) if item not in mixed), None)
        if item is not None:
            mixed.append(item)
    return mixed


def _take(connection: Connection, secret: str, item: str, person: str, now: float, until: float) -> Assignment:
    row = place_of_person(connection, item, person)
    if row is not None:
        extend(connection, row.id, now, until)
        return to_assignment(row, state="leased", lease_until=until)
    made = Assignment(
        id=uuid.uuid4().hex,
        item=item,
        person=person,
        exchanged=is_exchanged(secret, item, person),
        state="leased",
        lease_until=until,
    )
    connection.execute(assignments.insert(), {**asdict(made), "leased_at": now})
    return made


def _fraction(seed: str) -> float:
    """A number in [0, 1) that looks random and is the same for the same seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64
