"""The audit log: who did what and when; entries are added and never changed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from prefrl.data.store.engine import Database
from prefrl.data.store.records import Event
from prefrl.data.store.schema import events
from prefrl.data.store.texts import dumps, storable


def record(connection: Connection, person: str, kind: str, body: Mapping[str, Any], now: float | None = None) -> None:
    """Add an entry within a transaction that does what it tells of."""
    values = {"time": time.time() if now is None else now, "person": storable(person), "kind": kind}
    connection.execute(events.insert(), values | {"body": dumps(body)})


def events_of(database: Database, after: int, kind: str, person: str, limit: int) -> list[Event]:
    """Entries after a number, of one kind and one person where these are named, oldest first."""
    wanted = select(events).where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    if kind:
        wanted = wanted.where(events.c.kind == kind)
    if person:
        wanted = wanted.where(events.c.person == storable(person))
    with database.reading() as connection:
        rows = connection.execute(wanted).mappings().all()
    return [Event(**{**row, "body": json.loads(row["body"])}) for row in rows]
