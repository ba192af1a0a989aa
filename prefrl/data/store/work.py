"""Who gets which item, and what they say of it. Every rule is counted in the transaction that relies on it.

A person is *given* an item for a while (a lease). It is kept for them until they label it, hand it back, or the time is
over; then it is the next one's. A label that comes after that is taken while the item still has room for it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from prefrl.data.comparisons import Label, Outcome, Task
from prefrl.data.store.engine import Database
from prefrl.data.store.errors import Conflict, Full, Invalid
from prefrl.data.store.items import to_task
from prefrl.data.store.journal import record
from prefrl.data.store.labels import to_label
from prefrl.data.store.leasing import PLACE, extend, lease, progress_of, release, sweep, to_assignment
from prefrl.data.store.queue import OTHERS
from prefrl.data.store.records import Assignment, Flag, Progress
from prefrl.data.store.rules import LONGEST
from prefrl.data.store.schema import AnyRow, assignments, bodies, flags, items, labels
from prefrl.data.store.settings import project_of
from prefrl.data.store.submission import checked_id, not_yours, said_of, submit
from prefrl.data.store.texts import storable

_PLACE = (
    select(
        *PLACE,
        items.c.state.label("item_state"),
        items.c.is_gold,
        items.c.overlap,
        items.c.given,
        OTHERS.label("others"),
    )
    .join(items, items.c.id == assignments.c.item)
    .where(assignments.c.id == bindparam("place"))
)
_LABEL = [c for c in labels.c if c.name != "number"]
_MINE = (
    select(*_LABEL, bodies.c.body, items.c.overlap, *(c.label(f"place_{c.name}") for c in PLACE))
    .join(assignments, (assignments.c.item == labels.c.item) & (assignments.c.person == labels.c.annotator))
    .join(items, items.c.id == labels.c.item)
    .join(bodies, bodies.c.number == items.c.number)
    .where(assignments.c.person == bindparam("person"), assignments.c.state == "done")
    .where(labels.c.version == assignments.c.version)
    .order_by(assignments.c.labelled_at.desc(), items.c.number.desc())
)


class Work:
    """Assignments and labels of people."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def next(
        self, person: str, count: int = 2, held: Collection[str] = (), now: float | None = None
    ) -> list[Assignment]:
        """Items for a person to label.

        First what is theirs already and not held (a page that was loaded again shows the same item), then what the
        project wants most: by priority, then what has the fewest labels, then as added, with known answers mixed in.
        Nobody gets an item twice, no item more people than its overlap, and nobody more than the quota. Leases that
        are held are renewed.

        Args:
            person: who.
            count: most to hand out.
            held: ids of assignments that this person has on the screen, or ready for it.
            now: epoch seconds.
        """
        who, at = _name(person), _at(now)
        with self._database.writing() as connection:
            return lease(connection, project_of(connection), who, count, held, at)

    def assignment(self, id: str, person: str, now: float | None = None) -> Assignment:
        """The assignment of an id.

        Raises:
            NotYours: there is none, or it is somebody else's.
        """
        at = _at(now)
        with self._database.reading() as connection:
            row = _place(connection, id, person, at)
        over = row.state == "leased" and row.lease_until <= at
        return to_assignment(row, state="expired") if over else to_assignment(row)

    def submit(
        self,
        assignment: str,
        person: str,
        outcome: Outcome,
        *,
        label_id: str,
        strength: str = "",
        note: str = "",
        details: Mapping[str, Any] | None = None,
        base_version: int = 0,
        now: float | None = None,
    ) -> Label:
        """Store a label; it is on the disk on return. The same one handed in again changes nothing.

        Args:
            assignment, person: which item, and who says so.
            outcome, strength, note, details: see `Label`; of the sides as they are in the item.
            label_id: an id that the caller makes, once for each label.
            base_version: version of the label that this one changes; 0 for the first.
            now: epoch seconds.

        Raises:
            NotYours: there is no such assignment, or it is somebody else's.
            Conflict: the label was changed in the meantime, is too old to be changed, or the id is another label's.
            Full: the lease is over and the item has all its labels, or the person has.
            Invalid: the project does not ask this.
        """
        said, who = said_of(outcome, strength, note, details), storable(person)
        with self._database.writing() as connection:
            return submit(
                connection,
                project_of(connection),
                assignment,
                who,
                said,
                label_id=checked_id(label_id),
                base_version=base_version,
                now=_at(now),
            )

    def release(self, assignment: str, person: str, now: float | None = None) -> None:
        """Hand an item back, so that somebody else may have it at once; nothing happens to one that is labelled.

        Raises:
            NotYours: there is no such assignment, or it is somebody else's.
        """
        with self._database.writing() as connection:
            if _place(connection, assignment, person, _at(now)).state == "leased":
                release(connection, assignment)

    def renew(self, assignment: str, person: str, now: float | None = None) -> Assignment:
        """Keep an item for longer, or again where its time was over and nobody took the place.

        Raises:
            NotYours: there is no such assignment, or it is somebody else's.
            Full: others took the place.
        """
        at = _at(now)
        with self._database.writing() as connection:
            sweep(connection, at)
            row = _place(connection, assignment, person, at)
            if row.state == "done":
                return to_assignment(row)
            has_room = row.item_state == "open" and (row.is_gold or row.given + row.others < row.overlap)
            if row.state != "leased" and not has_room:
                raise Full("Others have taken this item in the meantime; go on with the next.")
            until = at + 60.0 * project_of(connection).settings.lease_minutes
            extend(connection, row.id, at, until)
        return to_assignment(row, state="leased", lease_until=until)

    def progress(self, person: str, now: float | None = None) -> Progress:
        """How far a person is."""
        with self._database.reading() as connection:
            return progress_of(connection, project_of(connection), _name(person), _at(now))

    def mine(self, person: str, limit: int = 50) -> list[tuple[Assignment, Task, Label]]:
        """What a person labelled, the last one first."""
        with self._database.reading() as connection:
            rows = connection.execute(_MINE.limit(limit), {"person": storable(person)}).all()
        return [(_assignment(row), to_task(row), to_label(row)) for row in rows]

    def flag(
        self, flag_id: str, assignment: str, person: str, reason: str, note: str = "", now: float | None = None
    ) -> Flag:
        """Report an item that a person was given; the same report handed in again changes nothing.

        Raises:
            NotYours: there is no such assignment, or it is somebody else's.
            Conflict: the id is another report's.
            Invalid: the project does not know the reason.
        """
        at, about = _at(now), (storable(reason), storable(note))
        with self._database.writing() as connection:
            row = _place(connection, assignment, person, at)
            known = connection.execute(select(flags).where(flags.c.id == checked_id(flag_id))).one_or_none()
            if known is not None:
                return _same_flag(to_flag(known), row, about)
            reasons = project_of(connection).settings.flag_reasons
            if (reasons and reason not in reasons) or len(note) > LONGEST:
                raise Invalid(f"Got the reason {reason[:80]!r} and {len(note)} characters; expected one of {reasons}.")
            made = Flag(id=flag_id, item=row.item, person=row.person, reason=about[0], note=about[1], time=at)
            connection.execute(flags.insert(), asdict(made))
            record(connection, row.person, "flag", {"flag": made.id, "item": made.item, "reason": made.reason}, at)
        return made


def flags_of(database: Database, open_only: bool) -> list[Flag]:
    """Reports in the order they came."""
    wanted = select(flags).order_by(flags.c.number)
    with database.reading() as connection:
        return [
            to_flag(row) for row in connection.execute(wanted.where(flags.c.resolved_by == "") if open_only else wanted)
        ]


def resolve_flag(database: Database, id: str, by: str) -> None:
    """Say that a report was looked at.

    Raises:
        Invalid: there is no such report, or nobody says so.
    """
    at, who = time.time(), _name(by)
    with database.writing() as connection:
        there = flags.c.id == id
        if connection.execute(select(flags.c.id).where(there)).one_or_none() is None:
            raise Invalid(f"There is no flag {id!r}; expected an id of flags.")
        change = update(flags).where(there, flags.c.resolved_by == "").values(resolved_by=who, resolved=at)
        if connection.execute(change).rowcount:
            record(connection, who, "flag resolved", {"flag": id}, at)


def to_flag(row: AnyRow) -> Flag:
    """The report of a row of the table."""
    values = row._asdict()
    del values["number"]
    return Flag(**values)


def _same_flag(known: Flag, row: AnyRow, about: tuple[str, str]) -> Flag:
    if (known.item, known.person, known.reason, known.note) != (row.item, row.person, *about):
        raise Conflict(f"The id {known.id!r} was used for another report; give every report an id of its own.")
    return known


def _place(connection: Connection, id: str, person: str, now: float) -> AnyRow:
    who = storable(person)
    row = connection.execute(_PLACE, {"place": storable(id), "person": who, "now": now}).one_or_none()
    if row is None or row.person != who:
        raise not_yours(id)
    return row


def _assignment(row: AnyRow) -> Assignment:
    return Assignment(**{column.name: getattr(row, f"place_{column.name}") for column in PLACE})


def _name(person: str) -> str:
    if not person.strip():
        raise Invalid("Got no name of a person; expected the name of who labels.")
    return storable(person)


def _at(now: float | None) -> float:
    return time.time() if now is None else now
