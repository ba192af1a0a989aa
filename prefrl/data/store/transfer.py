"""Everything of a project that is data, as JSON lines: settings, pictures, items, labels, reports; never accounts.

A file is read and checked whole before the store is locked, and goes into it in one transaction: all of it or nothing.
Settings are taken where none were saved, and stay otherwise.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from prefrl.data.comparisons import OUTCOMES, Label, task_from_dict
from prefrl.data.project import ProjectSettings
from prefrl.data.store.engine import Database, disk_errors
from prefrl.data.store.items import TASKS, batches, gold_from_dict, insert_items, item_row, to_task
from prefrl.data.store.journal import record
from prefrl.data.store.labels import add_labels, read_labels
from prefrl.data.store.media import TYPES, insert_media
from prefrl.data.store.records import ITEM_STATUSES, Flag
from prefrl.data.store.schema import flags, items, media
from prefrl.data.store.settings import project_of, save_settings
from prefrl.data.store.shapes import check_flag, check_label, check_settings
from prefrl.data.store.texts import dumps
from prefrl.data.store.work import to_flag
from prefrl.errors import DataError, PrefrlError


def export(database: Database, path: Path) -> int:
    """Write the data of a store; the number of lines."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            count = _write(database, scratch)
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
    return count


def _write(database: Database, path: Path) -> int:
    count = 0
    with database.reading() as connection, path.open("w", encoding="utf-8") as file:
        for count, line in enumerate(_lines(connection), start=1):  # noqa: B007
            file.write(f"{dumps(line)}\n")
    return count


def import_(database: Database, path: Path) -> int:
    """Add the data of a file; the number of items, labels and reports that were new."""
    from prefrl.data.tables import load_table

    read = _Read()
    for number, row in enumerate(load_table(path).rows, start=1):
        where = f"{path} line {number}"
        try:
            read.add(row, where)
        except (LookupError, TypeError, ValueError, AttributeError, PrefrlError) as error:
            raise DataError(
                f"{where} is no item or label as export writes them ({type(error).__name__}: {error}); nothing was "
                "imported."
            ) from error
    with database.writing() as connection:
        return _store(database, connection, read, str(path))


def _lines(connection: Connection) -> Iterator[Mapping[str, Any]]:
    project = project_of(connection)
    if project.saved:
        yield {"settings": project.settings.to_dict()}
    for row in connection.execute(select(media).order_by(media.c.hash)):
        yield {"media": {"hash": row.hash, "type": row.type, "body": base64.b64encode(row.body).decode()}}
    for row in connection.execute(TASKS.add_columns(items.c.priority, items.c.state, items.c.gold)):
        more = {"priority": row.priority} if row.priority else {}
        more |= {"state": row.state} if row.state != "open" else {}
        more |= {"gold": json.loads(row.gold)} if row.gold else {}
        yield {"item": to_task(row).to_dict(), **more}
    for label in read_labels(connection):
        yield {"label": label.to_dict()}
    for row in connection.execute(select(flags).order_by(flags.c.number)):
        yield {"flag": asdict(to_flag(row))}


@dataclass(slots=True)
class _Read:
    """The lines of a file, checked one by one."""

    settings: ProjectSettings | None = None
    media: list[dict[str, Any]] = field(default_factory=list)
    items: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, tuple[Label, str]] = field(default_factory=dict)  # by id, with where they are
    flags: dict[str, Flag] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], where: str) -> None:
        readers: dict[str, Callable[[Mapping[str, Any], str], None]] = {
            "settings": self._settings,
            "media": self._media,
            "item": self._item,
            "label": self._label,
            "flag": self._flag,
        }
        kind = next((name for name in readers if name in row), None)
        if kind is None:
            raise KeyError("item or label")
        readers[kind](row, where)

    def _settings(self, row: Mapping[str, Any], where: str) -> None:
        self.settings = ProjectSettings.from_dict(row["settings"])
        check_settings(self.settings)

    def _media(self, row: Mapping[str, Any], where: str) -> None:
        body = base64.b64decode(row["media"]["body"], validate=True)
        if hashlib.sha256(body).hexdigest() != row["media"]["hash"]:
            raise ValueError("a picture whose hash is another one")
        if row["media"]["type"] not in TYPES:
            raise ValueError(f"a picture of the type {row['media']['type']!r}; expected one of {', '.join(TYPES)}")
        self.media.append({"hash": row["media"]["hash"], "type": row["media"]["type"], "body": body})

    def _item(self, row: Mapping[str, Any], where: str) -> None:
        gold = gold_from_dict(row["gold"]) if "gold" in row else None
        state = row.get("state", "open")
        if state not in ITEM_STATUSES:
            raise ValueError(f"the state {state!r}")
        values = item_row(task_from_dict(row["item"]), gold)
        self.items.append(values | {"priority": int(row.get("priority", 0)), "state": state})

    def _label(self, row: Mapping[str, Any], where: str) -> None:
        label = Label(**row["label"])
        check_label(label)
        if label.outcome not in OUTCOMES or label.version < 1 or not label.annotator.strip():
            raise ValueError("an unknown outcome, a version below 1, or nobody who labelled")
        if self.labels.setdefault(label.id, (label, where))[0] != label:
            raise ValueError("two labels of the same id")

    def _flag(self, row: Mapping[str, Any], where: str) -> None:
        flag = Flag(**row["flag"])
        check_flag(flag)
        self.flags.setdefault(flag.id, flag)


def _store(database: Database, connection: Connection, read: _Read, origin: str) -> int:
    project = project_of(connection)
    if read.settings is not None and not project.saved:
        save_settings(connection, read.settings, "")
    insert_media(connection, read.media)
    added = sum(insert_items(connection, batch) for batch in batches(read.items))
    new = 0
    try:
        for batch in batches([label for label, _ in read.labels.values()]):
            new += add_labels(connection, project.secret, batch, lambda label: f"{read.labels[label.id][1]}: the label")
        reports = _insert_flags(connection, read)
    except IntegrityError as error:
        raise DataError(
            f"{origin} does not fit into {database.name}: a report is of an item that is nowhere, or another label of "
            f"the same person and version is here ({error.orig}); nothing was imported."
        ) from error
    if added + new + reports:
        record(connection, "", "import", {"items": added, "labels": new, "flags": reports})
    return added + new + reports


def _insert_flags(connection: Connection, read: _Read) -> int:
    known = set(connection.execute(select(flags.c.id)).scalars())
    rows = [asdict(flag) for flag in read.flags.values() if flag.id not in known]
    if rows:
        connection.execute(flags.insert(), rows)
    return len(rows)
