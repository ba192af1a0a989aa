"""Taking a label, within a transaction that writes: once, by whom it was asked, and while there is room for it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from prefrl.data.comparisons import Label
from prefrl.data.project import ProjectSettings
from prefrl.data.store.errors import Conflict, Full, Invalid, NotYours
from prefrl.data.store.items import TASKS
from prefrl.data.store.journal import record
from prefrl.data.store.labels import LABELS, counts, label_of_id, place_of, read_labels, write_label
from prefrl.data.store.leasing import role_of, tally_of
from prefrl.data.store.queue import OTHERS
from prefrl.data.store.records import REVIEWERS
from prefrl.data.store.rules import Said, check, outcomes
from prefrl.data.store.schema import AnyRow, assignments, items, labels
from prefrl.data.store.settings import Project
from prefrl.data.store.shapes import check_details
from prefrl.data.store.texts import dumps, iso, storable

_OURS = ("exchanged", "adjudication")  # details that the store says and not the person
_ITEM = [items.c[name] for name in ("kind", "overlap", "given", "is_gold")]
_PLACE = (
    select(assignments, *_ITEM, items.c.state.label("item_state"), OTHERS.label("others"))
    .join(items, items.c.id == assignments.c.item)
    .where(assignments.c.id == bindparam("place"))
)
_ASKED = select(items.c.kind, items.c.state).where(items.c.id == bindparam("item"))
_BODY = TASKS.where(items.c.id == bindparam("item"))
_EARLIER = LABELS.where(
    labels.c.item == bindparam("item"),
    labels.c.annotator == bindparam("person"),
    labels.c.version == bindparam("version"),
)
_CLOSE = update(items).where(items.c.id == bindparam("of")).values(state="closed")


def submit(
    connection: Connection,
    project: Project,
    place: str,
    person: str,
    said: Said,
    *,
    label_id: str,
    base_version: int,
    now: float,
) -> Label:
    """Store what a person says of an item that they were given; see `Work.submit`."""
    row = connection.execute(_PLACE, {"place": place, "person": person, "now": now}).one_or_none()
    if row is None or row.person != person:
        raise not_yours(place)
    known = label_of_id(connection, label_id)
    if known is not None:
        return same_label(known, row.item, person, said)
    _check_version(row, base_version, project, now)
    check(said, project.settings, row.kind, _steps(connection, row, row.item))
    role = role_of(connection, person) if row.item_state == "adjudication" else ""
    settles = role in REVIEWERS and counts(said.outcome) == 1 and row.version == 0
    _check_room(connection, row, project, said, settles, now)
    label = Label(
        id=label_id,
        item=row.item,
        annotator=person,
        version=row.version + 1,
        outcome=said.outcome,
        strength=said.strength,
        note=said.note,
        time=iso(now),
        details={**said.details, **_ours(connection, row, settles)},
    )
    write_label(connection, label, row.id, row.outcome)
    if settles:
        connection.execute(_CLOSE, {"of": row.item})
    return label


def submit_freely(
    connection: Connection, project: Project, item: str, person: str, said: Said, label_id: str, now: float
) -> Label:
    """Store what somebody says of an item that nobody gave them; see `PreferenceStore.submit`."""
    known = label_of_id(connection, label_id) if label_id else None
    if known is not None:
        return same_label(known, item, person, said)
    check_details(said.details, f"a label of item {item!r}")
    row = _asked(connection, item)
    if said.outcome not in (possible := outcomes(ProjectSettings(), row.kind)):
        raise Invalid(f"Got the outcome {said.outcome!r} of a {row.kind} item; expected one of {', '.join(possible)}.")
    disputed = row.state == "adjudication" and role_of(connection, person) in REVIEWERS
    settles = counts(said.outcome) == 1 and (disputed or bool(said.details.get("adjudication")))
    place = place_of(connection, project.secret, item, person, now)
    label = Label(
        id=label_id or uuid.uuid4().hex,
        item=item,
        annotator=person,
        version=place.version + 1,
        outcome=said.outcome,
        strength=said.strength,
        note=said.note,
        time=iso(now),
        details={**said.details, **({"adjudication": True} if settles else {})},
    )
    write_label(connection, label, place.id, place.outcome)
    if settles:
        connection.execute(_CLOSE, {"of": item})
    return label


def settle(
    connection: Connection, project: Project, item: str, person: str, said: Said, label_id: str, now: float
) -> Label:
    """Store what decides about an item, and close it; see `PreferenceStore.settle`."""
    row = _asked(connection, item)
    possible = outcomes(project.settings, row.kind)[:-1]
    if said.outcome not in possible or not person.strip():
        raise Invalid(
            f"Got the decision {said.outcome!r} of {person!r}; expected a name, and one of {', '.join(possible)}"
        )
    if said.outcome == "steps":
        check(said, replace(project.settings, rationale="optional"), "steps", _steps(connection, row, item))
    known = label_of_id(connection, label_id) if label_id else None
    decides = replace(said, details={**said.details, "adjudication": True})
    label = submit_freely(connection, project, item, person, decides, label_id, now)
    if known is None:
        record(connection, person, "settled", {"item": item, "label": label.id, "outcome": label.outcome}, now)
    return label


def said_of(outcome: Any, strength: str, note: str, details: Mapping[str, Any] | None) -> Said:
    """What is said, as the store will give it back."""
    given = json.loads(dumps(dict(details or {})))
    return Said(outcome=outcome, strength=storable(strength), note=storable(note), details=given)


def same_label(known: Label, item: str, person: str, said: Said) -> Label:
    """The stored label, for one that is handed in again.

    Raises:
        Conflict: it says something else.
    """
    stored = Said(outcome=known.outcome, strength=known.strength, note=known.note, details=known.details)
    if (known.item, known.annotator, _theirs(stored)) != (item, person, _theirs(said)):
        raise Conflict(f"The label id {known.id!r} was used for another label; give every label an id of its own.")
    return known


def _theirs(said: Said) -> Said:
    return replace(said, details={name: value for name, value in said.details.items() if name not in _OURS})


def not_yours(place: str) -> NotYours:
    """The same words for an assignment that is not there, and for somebody else's."""
    return NotYours(f"You have no assignment {place!r}; ask for the next item.")


def _check_version(row: AnyRow, base_version: int, project: Project, now: float) -> None:
    if base_version != row.version:
        raise Conflict(
            f"Your label of this item is version {row.version} by now, and this changes version {base_version}; load "
            "the item again, and change what is there."
        )
    minutes = project.settings.edit_minutes
    if row.version and minutes and now > row.labelled_at + 60.0 * minutes:
        raise Conflict(f"A label may be changed for {minutes:g} minutes in this project, and this one is older.")


def _check_room(connection: Connection, row: AnyRow, project: Project, said: Said, settles: bool, now: float) -> None:
    """See that a label that fills a place of the item, and one of the person's quota, finds both free."""
    if counts(said.outcome) <= counts(row.outcome):
        return
    quota = project.settings.quota
    if quota and tally_of(connection, row.person).done >= quota:
        raise Full(f"You have given all {quota} labels that this project asks of a person. Thank you.")
    kept = row.state == "leased" and row.lease_until > now
    free = (
        settles
        if row.item_state == "adjudication"
        else row.item_state == "open" and row.given + row.others < row.overlap
    )
    if not (kept or free or (row.is_gold and row.item_state == "open")):
        raise Full("Others have labelled this item in the meantime, so no label of it is missing; go on with the next.")


def _ours(connection: Connection, row: AnyRow, settles: bool) -> dict[str, bool]:
    """What the store adds to the details: the sides as shown, and whether the label settles what others disagree on."""
    if row.version:
        about = {"item": row.item, "person": row.person, "version": row.version}
        (earlier,) = read_labels(connection, _EARLIER.params(about))
        settles = bool(earlier.details.get("adjudication"))
    exchanged = {"exchanged": bool(row.exchanged)} if row.kind == "pair" else {}
    return exchanged | ({"adjudication": True} if settles else {})


def _asked(connection: Connection, item: str) -> AnyRow:
    row = connection.execute(_ASKED, {"item": item}).one_or_none()
    if row is None:
        raise Invalid(f"This store has no item {item!r}; expected an id of its items.")
    return row


def _steps(connection: Connection, row: AnyRow, item: str) -> int:
    if row.kind != "steps":
        return 0
    return len(json.loads(connection.execute(_BODY, {"item": item}).one().body)["steps"])


def checked_id(id: str) -> str:
    """An id of the caller's.

    Raises:
        Invalid: it is empty, or no plain text of at most 200 characters.
    """
    if not id.strip() or len(id) > 200 or id != storable(id):
        raise Invalid(f"Got the id {id[:50]!r}; expected a plain text of 1 to 200 characters, such as uuid4().hex.")
    return id
