"""Copies of a store, and whether it is sound."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, text

from prefrl.data.store.engine import Database, disk_errors
from prefrl.errors import DataError

_LIVE = "version = (SELECT MAX(version) FROM labels o WHERE o.item = l.item AND o.annotator = l.annotator)"
_COUNTS = {  # what a row must not be, and what it tells of it
    "item {0}: it counts {1} labels and {2} skips, and has others": (
        "SELECT id, given, skipped FROM items i WHERE "
        f"given <> (SELECT COUNT(*) FROM labels l WHERE item = i.id AND outcome <> 'skip' AND {_LIVE}) OR "
        f"skipped <> (SELECT COUNT(*) FROM labels l WHERE item = i.id AND outcome = 'skip' AND {_LIVE})"
    ),
    "item {0}: what it asks is missing": (
        "SELECT id FROM items i WHERE NOT EXISTS (SELECT 1 FROM bodies b WHERE b.number = i.number)"
    ),
    "item {0} and {1}: the assignment does not tell of the last label": (
        f"SELECT item, annotator FROM labels l WHERE {_LIVE} AND NOT EXISTS (SELECT 1 FROM assignments a WHERE "
        "a.item = l.item AND a.person = l.annotator AND a.state = 'done' AND a.version = l.version "
        "AND a.outcome = l.outcome)"
    ),
    "item {0} and {1}: an assignment is done, and there is no label": (
        "SELECT item, person FROM assignments a WHERE (a.state = 'done' OR a.version > 0) AND NOT EXISTS "
        "(SELECT 1 FROM labels l WHERE l.item = a.item AND l.annotator = a.person AND l.version = a.version)"
    ),
    "item {0} and {1}: there are {2} versions, and the last one is {3}": (
        "SELECT item, annotator, COUNT(*), MAX(version) FROM labels GROUP BY item, annotator "
        "HAVING COUNT(*) <> MAX(version)"
    ),
}


def check(database: Database) -> list[str]:
    """What is wrong with a store: nothing, of a sound one. Counts are compared with the labels themselves."""
    with database.reading() as connection:
        found = _integrity(connection) if database.is_sqlite else []
        for words, query in _COUNTS.items():
            found += [words.format(*row) for row in connection.execute(text(f"{query} ORDER BY 1")).all()]
    return found


def backup(database: Database, path: Path | None) -> Path:
    """Copy a store while it is in use; the copy holds one moment of it, and was read through.

    Args:
        database: a file.
        path: of the copy; without it, in the folder backups beside the store, named by the time.

    Raises:
        DataError: there is a file already, the copy is damaged, or the store is in Postgres.
    """
    if database.path is None:
        raise DataError(
            f"{database.name} is a database of Postgres, which has its own copies. Type: pg_dump {database.name}"
        )
    name = f"{database.path.stem}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.db"
    target = path or database.path.parent / "backups" / name
    if target.exists():
        raise DataError(f"There is a file {target} already; name another one.")
    scratch = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    with database.errors(), disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _copy(database.path, scratch)
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
    return target


def _copy(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as one, contextlib.closing(sqlite3.connect(target)) as other:
        one.backup(other)
        other.execute("PRAGMA journal_mode = DELETE")  # one file, without companions
        (health,) = other.execute("PRAGMA integrity_check(1)").fetchone()
    if health != "ok":
        raise DataError(f"The copy of {source} is damaged ({health}); the store itself may be, too.")
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _integrity(connection: Connection) -> list[str]:
    found = [str(line) for line in connection.exec_driver_sql("PRAGMA integrity_check").scalars() if line != "ok"]
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    return found + [
        f"table {table}, row {row}: what it points to in {parent} is missing" for table, row, parent, _ in broken
    ]
