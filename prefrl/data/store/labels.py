"""Labels in the database: read, and written together with what is counted beside them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Select, bindparam, func, select, update

from prefrl.data.comparisons import Label
from prefrl.data.project import ProjectSettings
from prefrl.data.store.items import rows_of
from prefrl.data.store.rules import outcomes
from prefrl.data.store.schema import AnyRow, assignments, items, labels
from prefrl.data.store.shapes import check_label
from prefrl.data.store.texts import dumps, epoch, is_exchanged, iso
from prefrl.errors import DataError

_LABEL = [c for c in labels.c if c.name != "number"]
LABELS = select(*_LABEL).order_by(labels.c.number)
_BY_ID = LABELS.where(labels.c.id == bindparam("label_id"))
_DONE = (
    update(assignments)
    .where(assignments.c.id == bindparam("of"))
    .values(
        state="done",
        version=bindparam("version"),
        outcome=bindparam("outcome"),
        labelled_at=func.coalesce(assignments.c.labelled_at, bindparam("now")),
    )
)
_COUNT = (
    update(items)
    .where(items.c.id == bindparam("of"))
    .values(given=items.c.given + bindparam("more"), skipped=items.c.skipped + bindparam("skips"))
)
_OF_PERSON = select(assignments).where(
    assignments.c.item == bindparam("item"), assignments.c.person == bindparam("person")
)


_BY_IDS = LABELS.where(labels.c.id.in_(bindparam("ids", expanding=True)))
_ITEMS = select(items.c.id, items.c.kind).where(items.c.id.in_(bindparam("ids", expanding=True)))
_VERSIONS = (
    select(labels.c.item, labels.c.annotator, labels.c.version, labels.c.outcome, labels.c.time)
    .where(labels.c.item.in_(bindparam("ids", expanding=True)))
    .order_by(labels.c.version)
)
_PLACES = select(assignments.c.id, assignments.c.item, assignments.c.person).where(
    assignments.c.item.in_(bindparam("ids", expanding=True))
)


def _people(skipped: bool) -> ScalarSelect[Any]:
    """People whose last label of an item is a skip, or is none."""
    outcome = assignments.c.outcome
    said = outcome == "skip" if skipped else outcome != "skip"
    return select(func.count()).where(assignments.c.item == items.c.id, said).correlate(items).scalar_subquery()


_RECOUNT = (
    update(items)
    .where(items.c.id.in_(bindparam("ids", expanding=True)))
    .values(given=_people(skipped=False), skipped=_people(skipped=True))
)


def live_labels() -> Select[Any]:
    """The last label of every person on every item."""
    return LABELS.join(
        assignments,
        (assignments.c.item == labels.c.item)
        & (assignments.c.person == labels.c.annotator)
        & (assignments.c.version == labels.c.version),
    )


def read_labels(connection: Connection, wanted: Select[Any] = LABELS) -> list[Label]:
    """Labels in the order they came."""
    return [to_label(row) for row in connection.execute(wanted).all()]


def labels_of(connection: Connection, wanted: Select[Any], of: Iterable[str]) -> list[Label]:
    """Labels of some items, in the order they came."""
    return [to_label(row) for row in rows_of(connection, wanted.add_columns(labels.c.number), labels.c.item, of)]


def to_label(row: AnyRow) -> Label:
    """The label of a row that begins with the columns of a label."""
    id, item, annotator, version, outcome, strength, note, at, details = row[:9]
    return Label(
        id=id,
        item=item,
        annotator=annotator,
        version=version,
        outcome=outcome,
        strength=strength,
        note=note,
        time=at,
        details=json.loads(details),
    )


def label_of_id(connection: Connection, label_id: str) -> Label | None:
    """The label of that id, if there is one."""
    row = connection.execute(_BY_ID, {"label_id": label_id}).one_or_none()
    return None if row is None else to_label(row)


def place_of_person(connection: Connection, item: str, person: str) -> AnyRow | None:
    """The assignment of an item and a person, if there is one."""
    return connection.execute(_OF_PERSON, {"item": item, "person": person}).one_or_none()


def place_of(connection: Connection, secret: str, item: str, person: str, now: float) -> AnyRow:
    """The assignment of an item and a person, made where there is none."""
    found = place_of_person(connection, item, person)
    if found is not None:
        return found
    connection.execute(assignments.insert(), _fresh_place(secret, item, person, now, None))
    made = place_of_person(connection, item, person)
    assert made is not None
    return made


def write_label(connection: Connection, label: Label, place: str, before: str | None) -> None:
    """Store a label and count it; a label of an earlier version than the one that counts is kept and not counted.

    Args:
        connection: a transaction that writes.
        label: what to store.
        place: id of the assignment.
        before: outcome of this person that counted until now, None where there was none.
    """
    insert_label(connection, label)
    values = {"of": place, "version": label.version, "outcome": label.outcome, "now": epoch(label.time)}
    connection.execute(_DONE, values)
    more = counts(label.outcome) - counts(before)
    skips = (label.outcome == "skip") - (before == "skip")
    if more or skips:
        connection.execute(_COUNT, {"of": label.item, "more": more, "skips": skips})


def insert_label(connection: Connection, label: Label) -> None:
    """Store a label."""
    connection.execute(labels.insert(), {**label.to_dict(), "details": dumps(label.details)})


def counts(outcome: str | None) -> int:
    """1 for an outcome that fills one of the places of an item: all but a skip, and none."""
    return int(outcome is not None and outcome != "skip")


def name_of(label: Label) -> str:
    """What messages call a label."""
    return f"Label {label.id!r}"


def add_labels(
    connection: Connection, secret: str, given: Sequence[Label], name: Callable[[Label], str] = name_of
) -> int:
    """Store labels that were given elsewhere, and count them; how many were new.

    Args:
        connection: a transaction that writes.
        secret: of the project.
        given: labels with their ids and versions; one without a time is of now.
        name: what messages call a label.

    Raises:
        DataError: one is of an item that is nowhere, contradicts one that is here, or leaves out versions.
    """
    for label in given:
        check_label(label)
    here = _here(connection, given)
    asked = connection.execute(_ITEMS, {"ids": [label.item for label in given]})
    there = {row.id: row.kind for row in asked}
    now, fresh = iso(time.time()), dict[str, Label]()
    for label in given:
        if label.item not in there:
            raise DataError(f"{name(label)} is of item {label.item!r}, which is nowhere; nothing was stored.")
        if label.outcome not in (possible := outcomes(ProjectSettings(), kind := there[label.item])):
            raise DataError(
                f"{name(label)} says {label.outcome!r} of a {kind} item; expected one of {', '.join(possible)}."
            )
        known = here.get(label.id) or fresh.get(label.id)
        if known is None:
            fresh[label.id] = replace(label, time=label.time or now)
        elif known != replace(label, time=label.time or known.time):
            raise DataError(f"{name(label)} is another one here; nothing was stored.")
    if fresh:
        rows = [{**label.to_dict(), "details": dumps(label.details)} for label in fresh.values()]
        connection.execute(labels.insert(), rows)
        shown = {(label.item, label.annotator): label.details.get("exchanged") for label in fresh.values()}
        _recount(connection, secret, shown)
    return len(fresh)


def _here(connection: Connection, given: Sequence[Label]) -> dict[str, Label]:
    """Labels that are here already and have the ids of those that are given."""
    rows = connection.execute(_BY_IDS, {"ids": [label.id for label in given]}).all()
    return {label.id: label for label in map(to_label, rows)}


def _recount(connection: Connection, secret: str, places: Mapping[tuple[str, str], Any]) -> None:
    """Let assignments and counts tell of labels that were stored at once.

    Args:
        connection: a transaction that writes.
        secret: of the project.
        places: whether the sides were exchanged, by the item and the person; None where the label does not say.
    """
    of_items = {"ids": sorted({item for item, _ in places})}
    versions: dict[tuple[str, str], list[AnyRow]] = {place: [] for place in places}
    for row in connection.execute(_VERSIONS, of_items).all():
        if (row.item, row.annotator) in versions:
            versions[row.item, row.annotator].append(row)
    ids = {(row.item, row.person): row.id for row in connection.execute(_PLACES, of_items).all()}
    made, done = [], []
    for (item, person), rows in versions.items():
        if [row.version for row in rows] != list(range(1, len(rows) + 1)):
            raise DataError(f"The versions of the label of {person!r} on item {item!r} have gaps; nothing was stored.")
        first = epoch(rows[0].time)
        if (item, person) not in ids:
            made.append(_fresh_place(secret, item, person, first, places[item, person]))
            ids[item, person] = made[-1]["id"]
        last = rows[-1]
        done.append({"of": ids[item, person], "version": last.version, "outcome": last.outcome, "now": first})
    if made:
        connection.execute(assignments.insert(), made)
    connection.execute(_DONE, done)
    connection.execute(_RECOUNT, of_items)


def _fresh_place(secret: str, item: str, person: str, now: float, exchanged: Any) -> dict[str, Any]:
    """An assignment that nobody was given yet, with the sides that were shown where that is known."""
    return {
        "id": uuid.uuid4().hex,
        "item": item,
        "person": person,
        "exchanged": exchanged if isinstance(exchanged, bool) else is_exchanged(secret, item, person),
        "state": "released",
        "leased_at": now,
        "lease_until": now,
    }
