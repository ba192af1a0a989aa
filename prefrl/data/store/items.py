"""What people are asked, in the order in which it was added, with what is known to be right of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, insert, select, update

from prefrl.data.comparisons import Item, Task, task_from_dict
from prefrl.data.project import ProjectSettings
from prefrl.data.store.engine import Database
from prefrl.data.store.errors import Invalid
from prefrl.data.store.journal import record
from prefrl.data.store.records import ITEM_STATUSES, Gold, ItemState, ItemStatus
from prefrl.data.store.rules import outcomes
from prefrl.data.store.schema import AnyRow, assignments, bodies, items
from prefrl.data.store.shapes import check_task
from prefrl.data.store.texts import dumps, storable
from prefrl.errors import DataError, did_you_mean

LONGEST_ID, MOST = 1000, 10**9  # characters of an id; people of an item, and its priority
BATCH = 200  # items that are added in one transaction: labels come in between
_T = TypeVar("_T")
TASKS = select(bodies.c.body, items.c.overlap).join(items, items.c.number == bodies.c.number).order_by(items.c.number)
_BODY = insert(bodies).from_select(
    ["number", "body"], select(items.c.number, bindparam("text")).where(items.c.id == bindparam("of"))
)


class Items:
    """The items of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tasks: Sequence[Task], *, by: str = "", gold: Mapping[str, Gold] | None = None) -> int:
        """Add what is not there yet; how many that were. One that is there stays, but for an overlap that grew.

        Args:
            tasks: items of any kind.
            by: who adds them.
            gold: what is known to be right, by the id of an item.

        Raises:
            DataError: an id that cannot be kept, or a known answer of an item that is not among these.
        """
        known = dict(gold or {})
        rows = [item_row(task, known.get(task.id)) for task in tasks]
        if unknown := sorted(known.keys() - {task.id for task in tasks}):
            raise Invalid(
                f"Got a known answer of item {unknown[0]!r}; expected the id of one of the {len(rows)} items."
            )
        added = 0
        for batch in batches(rows):
            with self._database.writing() as connection:
                added += insert_items(connection, batch)
        if added:
            with self._database.writing() as connection:
                record(connection, by, "items added", {"added": added, "of": len(rows)})
        return added

    def all(
        self, *, ids: Iterable[str] | None = None, kind: str = "", state: str = "", gold: bool | None = None
    ) -> list[Task]:
        """Items in the order they were added: those of these ids, of this kind, in this state, with a known answer."""
        wanted = TASKS.add_columns(items.c.number)
        if kind:
            wanted = wanted.where(items.c.kind == kind)
        if state:
            wanted = wanted.where(items.c.state == state)
        if gold is not None:
            wanted = wanted.where(items.c.is_gold == gold)
        with self._database.reading() as connection:
            if ids is None:
                return [to_task(row) for row in connection.execute(wanted)]
            rows = rows_of(connection, wanted, items.c.id, ids)
        return [to_task(row) for row in rows]

    def pairs(self, connection: Connection, *conditions: ColumnElement[bool], **about: Any) -> list[Item]:
        """Pairs in the order they were added, under conditions with what these ask for."""
        rows = connection.execute(TASKS.where(items.c.kind == "pair", *conditions), about)
        return [cast(Item, to_task(row)) for row in rows]

    def get(self, id: str) -> Task:
        """The item of an id.

        Raises:
            DataError: there is none.
        """
        with self._database.reading() as connection:
            row = connection.execute(TASKS.where(items.c.id == storable(id))).one_or_none()
        if row is None:
            raise DataError(f"There is no item {id!r:.80}; expected an id of items.")
        return to_task(row)

    def count(self) -> int:
        """How many items there are."""
        with self._database.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(items)).scalar_one())

    def states(self, now: float, ids: Iterable[str] | None = None) -> dict[str, ItemState]:
        """Where every item stands, or those of some ids, by its id."""
        open_now = (assignments.c.state == "leased") & (assignments.c.lease_until > now)
        leases = (
            select(assignments.c.item, func.count().label("leases"))
            .where(open_now)
            .group_by(assignments.c.item)
            .subquery()
        )
        wanted = (
            select(items, func.coalesce(leases.c.leases, 0).label("leases"))
            .outerjoin(leases, leases.c.item == items.c.id)
            .order_by(items.c.number)
        )
        with self._database.reading() as connection:
            if ids is None:
                return {row.id: _state(row) for row in connection.execute(wanted)}
            rows = rows_of(connection, wanted, items.c.id, ids)
        return {row.id: _state(row) for row in rows}

    def set_state(self, ids: Iterable[str], state: ItemStatus, by: str = "") -> int:
        """Open or close items, or have a reviewer settle them; the number of those that changed."""
        if state not in ITEM_STATUSES:
            raise Invalid(f"Got the state {state!r} of items; expected {', '.join(ITEM_STATUSES)}.")
        return self._set(ids, by, "state", state)

    def set_priority(self, ids: Iterable[str], priority: int, by: str = "") -> int:
        """Have items labelled sooner, or later; the number of those that changed. All begin with 0."""
        return self._set(ids, by, "priority", int(priority))

    def set_overlap(self, ids: Iterable[str], overlap: int, by: str = "") -> int:
        """Have items labelled by so many people; the number of those that changed."""
        if overlap < 1:
            raise Invalid(f"Got an overlap of {overlap}; expected 1 or more.")
        return self._set(ids, by, "overlap", int(overlap))

    def set_gold(self, id: str, gold: Gold | None, by: str = "") -> None:
        """Say what is known to be right of an item, or that nothing is.

        Raises:
            DataError: there is no such item, or nobody can say this of it.
        """
        task = self.get(id)
        values = {"is_gold": gold is not None, "gold": None if gold is None else _gold_text(task, gold)}
        with self._database.writing() as connection:
            connection.execute(update(items).where(items.c.id == id).values(values))
            record(connection, by, "gold", {"item": id, "gold": None if gold is None else asdict(gold)})

    def gold(self) -> dict[str, Gold]:
        """What is known to be right, by the id of the item."""
        wanted = select(items.c.id, items.c.gold).where(items.c.is_gold).order_by(items.c.number)
        with self._database.reading() as connection:
            return {row.id: gold_from_dict(json.loads(row.gold)) for row in connection.execute(wanted)}

    def _set(self, ids: Iterable[str], by: str, column: str, value: Any) -> int:
        if isinstance(value, int) and abs(value) > MOST:
            raise Invalid(f"Got the {column} {value}; expected at most {MOST}.")
        named, changed = list(dict.fromkeys(ids)), 0
        with self._database.writing() as connection:
            for some in batches(named):
                there = items.c.id.in_(some)
                known = known_ids(connection, some)
                if unknown := [id for id in some if id not in known]:
                    raise Invalid(f"There is no item {unknown[0]!r}; expected ids of items. Nothing was changed.")
                change = update(items).where(there, items.c[column] != value).values({column: value})
                changed += connection.execute(change).rowcount
            if changed:
                record(connection, by, f"items {column}", {"items": named, column: value})
        return changed


def item_row(task: Task, gold: Gold | None = None) -> dict[str, Any]:
    """The columns of an item.

    Raises:
        DataError: an id that cannot be kept, an overlap below 1, or a value of another type than pages rely on.
    """
    plain = isinstance(task.id, str) and 0 < len(task.id) <= LONGEST_ID and task.id == storable(task.id)
    if not plain or not isinstance(task.overlap, int) or task.overlap < 1:
        raise Invalid(
            f"Got item {task.id!r:.80} of overlap {task.overlap!r}; expected a plain id, and an overlap from 1 on."
        )
    check_task(task)
    known = None if gold is None else _gold_text(task, gold)
    return {
        "id": task.id,
        "overlap": task.overlap,
        "body": dumps(task.to_dict()),
        "kind": task.kind,
        "is_gold": known is not None,
        "gold": known,
    }


def known_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Those of the ids that items have."""
    return set(connection.execute(select(items.c.id).where(items.c.id.in_(ids))).scalars())


def insert_items(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add rows of `item_row` that are not there yet, and let overlaps grow; how many were new."""
    there = known_ids(connection, [row["id"] for row in rows])
    fresh = {row["id"]: row for row in reversed(rows) if row["id"] not in there}  # the first one of each id
    made = [row for row in rows if fresh.get(row["id"]) is row]
    if made:
        connection.execute(insert(items), [{k: v for k, v in row.items() if k != "body"} for row in made])
        connection.execute(_BODY, [{"of": row["id"], "text": row["body"]} for row in made])
    for row in rows:
        if fresh.get(row["id"]) is not row:
            it = update(items).where(items.c.id == row["id"])
            connection.execute(it.where(items.c.overlap < row["overlap"]).values(overlap=row["overlap"]))
            if row["is_gold"]:
                connection.execute(it.values(is_gold=True, gold=row["gold"]))
    return len(made)


def to_task(row: AnyRow) -> Task:
    """The item of a body and the overlap that holds now."""
    return task_from_dict({**json.loads(row.body), "overlap": row.overlap})


def gold_from_dict(values: Mapping[str, Any]) -> Gold:
    """The known answer of its JSON."""
    return Gold(outcome=values["outcome"], note=values["note"], ratings=tuple(values["ratings"]))


def rows_of(
    connection: Connection, wanted: Select[Any], column: ColumnElement[str], ids: Iterable[str]
) -> list[AnyRow]:
    """Rows that have one of the ids in a column, by their numbers."""
    named = batches(list(dict.fromkeys(ids)))
    rows = [row for some in named for row in connection.execute(wanted.where(column.in_(some)))]
    return sorted(rows, key=lambda row: row.number)


def batches(values: Sequence[_T]) -> Iterator[list[_T]]:
    """The values in order, `BATCH` of them at a time."""
    rest = iter(values)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _gold_text(task: Task, gold: Gold) -> str:
    expected = outcomes(ProjectSettings(), task.kind)
    if gold.outcome not in expected or gold.outcome == "skip":
        raise Invalid(
            f"Got the known answer {gold.outcome!r} of {task.kind} item {task.id!r}; expected one of "
            f"{', '.join(expected[:-1])}.{did_you_mean(gold.outcome, expected[:-1])}"
        )
    return dumps(asdict(gold))


def _state(row: AnyRow) -> ItemState:
    return ItemState(
        id=row.id,
        kind=row.kind,
        state=row.state,
        priority=row.priority,
        overlap=row.overlap,
        labels=row.given,
        skips=row.skipped,
        leases=row.leases,
        gold=row.is_gold,
    )
