"""The preference store: pairs that people are asked about, and their labels, none of which is ever overwritten.

    with PreferenceStore("preferences.db") as store:
        store.add_items([Item(prompt=prompt, first=a, second=b)])
        for item in store.open_items("ann"):
            store.submit(item.id, "ann", "first")
        pairs = store.pairs()

One SQLite file in WAL mode. A label is on the disk when `submit` returns; changing one's mind adds a version, and the
last version of each person counts. Items and labels are known by id, so whatever is handed in twice is stored once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prefrl.data.comparisons import OUTCOMES, Item, Judgement, Label, Outcome, to_pairs
from prefrl.errors import DataError, did_you_mean
from prefrl.types import Pair

_APPLICATION, _VERSION = 0x70_72_66_6C, 1  # "prfl"; the version is that of the tables
_TABLES = """
CREATE TABLE items (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, overlap INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE TABLE labels (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, item TEXT NOT NULL REFERENCES items (id),
    annotator TEXT NOT NULL, version INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('first', 'second', 'tie', 'skip')),
    strength TEXT NOT NULL, note TEXT NOT NULL, time TEXT NOT NULL,
    UNIQUE (item, annotator, version)
);
CREATE TRIGGER labels_stay BEFORE UPDATE ON labels BEGIN SELECT RAISE(ABORT, 'labels are append-only'); END;
CREATE TRIGGER labels_remain BEFORE DELETE ON labels BEGIN SELECT RAISE(ABORT, 'labels are append-only'); END;
"""
_LABEL = "id, item, annotator, version, outcome, strength, note, time"
_LIVE = "version = (SELECT MAX(version) FROM labels o WHERE o.item = l.item AND o.annotator = l.annotator)"

_OPEN = (
    "NOT EXISTS (SELECT 1 FROM labels WHERE item = i.id AND annotator = ?) AND "
    "(SELECT COUNT(DISTINCT annotator) FROM labels WHERE item = i.id) < overlap"
)


class PreferenceStore:
    """Items and labels in one SQLite file; use it as a context manager.

    Args:
        path: the file.
        create: make it where there is none.

    Raises:
        DataError: there is none, or it is no preference store, or a damaged one.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path)
        if not create and not self.path.is_file():
            near = did_you_mean(self.path.name, [p.name for p in self.path.parent.glob("*.db")])
            raise DataError(f"There is no preference store {self.path}.{near} prefrl loop makes one.")
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            try:
                self._open(create)
            except BaseException:
                self._db.close()
                raise

    def add_items(self, items: Sequence[Item]) -> int:
        """Add what is not there yet; how many that were. One that is there stays, but for an overlap that grew."""
        rows = [(item.id, item.overlap, _dumps(item.to_dict())) for item in items]
        with self._writing():
            before = self._count("items")
            self._db.executemany(
                "INSERT INTO items (id, overlap, body) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE "
                "SET overlap = excluded.overlap, body = excluded.body WHERE excluded.overlap > overlap",
                rows,
            )
            return self._count("items") - before

    def items(self) -> list[Item]:
        """All items in the order they were added."""
        return [_item(body) for (body,) in self._read("SELECT body FROM items ORDER BY number")]

    def open_items(self, annotator: str) -> list[Item]:
        """What this person may label: items without a label of theirs, which fewer than `overlap` people labelled.

        A skip counts as a label here, so nobody waits for an item that cannot be judged.
        """
        rows = self._read(f"SELECT body FROM items i WHERE {_OPEN} ORDER BY number", (_storable(annotator),))
        return [_item(body) for (body,) in rows]

    def is_open(self, item: str, annotator: str) -> bool:
        """Whether an item is one of `open_items`, which others label too."""
        return bool(self._read(f"SELECT 1 FROM items i WHERE {_OPEN} AND id = ?", (_storable(annotator), item)))

    def submit(
        self,
        item: str,
        annotator: str,
        outcome: Outcome,
        *,
        strength: str = "",
        note: str = "",
        label_id: str = "",
    ) -> Label:
        """Store a label, as a new version where this person labelled the item before; it is on the disk on return.

        Args:
            item: id of the item.
            annotator: who says so.
            outcome: first, second, tie or skip.
            strength, note: see `Label`.
            label_id: an id of the caller's; the same one handed in again changes nothing.

        Raises:
            DataError: an unknown item or outcome, no annotator, or an id that another label has.
        """
        if outcome not in OUTCOMES or not annotator.strip():
            raise DataError(
                f"Got the outcome {outcome!r} of annotator {annotator!r}; expected {', '.join(OUTCOMES)}, and a name."
            )
        annotator = _storable(annotator)
        said = (item, annotator, outcome, _storable(strength), _storable(note))
        with self._writing():
            if label_id and (known := self._labels("WHERE id = ?", label_id)):
                return _same(known[0], said)
            if not self._read("SELECT 1 FROM items WHERE id = ?", (item,)):
                raise DataError(f"{self.path} has no item {item!r}; expected an id of open_items.")
            ((last,),) = self._read(
                "SELECT COALESCE(MAX(version), 0) FROM labels WHERE item = ? AND annotator = ?", (item, annotator)
            )
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            label = Label(
                id=label_id or uuid.uuid4().hex,
                item=item,
                annotator=annotator,
                version=last + 1,
                outcome=outcome,
                strength=said[3],
                note=said[4],
                time=time,
            )
            self._insert(label)
        return label

    def labels(self, *, all_versions: bool = False) -> list[Label]:
        """The last label of every person on every item, or all versions, in the order they came."""
        return self._labels("" if all_versions else f"WHERE {_LIVE}")

    def judgements(self) -> list[Judgement]:
        """Live labels with their items: by item as added, then as they came."""
        items = {item.id: item for item in self.items()}
        found: dict[str, list[Judgement]] = {name: [] for name in items}
        for label in self.labels():
            found[label.item].append(Judgement(items[label.item], label))
        return [judgement for of_item in found.values() for judgement in of_item]

    def pairs(self, margins: Mapping[str, float] | None = None) -> list[Pair]:
        """All judgements as training pairs; see `to_pairs`."""
        return to_pairs(self.judgements(), margins)

    def export(self, path: str | Path) -> int:
        """Write items and all versions of all labels as JSON lines, the same bytes every time; the number of lines."""
        lines = [_dumps({"item": item.to_dict()}) for item in self.items()]
        lines += [_dumps({"label": label.to_dict()}) for label in self.labels(all_versions=True)]
        target = Path(path)
        scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with self._errors(target):
            scratch.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            os.replace(scratch, target)
        return len(lines)

    def import_(self, path: str | Path) -> int:
        """Add what an `export` wrote, all of it or nothing; the number of items and labels that were new.

        Raises:
            DataError: a line that `export` does not write, or a label that contradicts one that is here.
        """
        from prefrl.data.tables import load_table

        table = load_table(Path(path))
        with self._writing():
            return sum(self._import_row(row, f"{path} line {n}") for n, row in enumerate(table.rows, start=1))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, create: bool) -> None:
        if self._is_new() and not create:  # before anything is changed: the file may be somebody else's
            raise DataError(f"{self.path} is empty; expected a preference store. prefrl loop makes one.")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # a label is somebody's time: durable on return
        self._db.execute("PRAGMA foreign_keys = ON")
        with self._writing():  # two who open a new store at once must not both make its tables
            if self._is_new():
                for statement in _statements(_TABLES):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
        (health,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if health != "ok":
            raise DataError(f"The preference store {self.path} is damaged ({health}); restore it from a copy.")

    def _is_new(self) -> bool:
        """Whether the database is empty.

        Raises:
            DataError: it is another kind of database.
        """
        (tables,) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if not tables and not application:
            return True
        if (application, version) != (_APPLICATION, _VERSION):
            raise DataError(f"{self.path} is another kind of database; expected a preference store of this version.")
        return False

    def _import_row(self, row: Mapping[str, Any], where: str) -> int:
        try:
            if "item" in row:
                item = Item.from_dict(row["item"])
                values = (item.id, item.overlap, _dumps(item.to_dict()))
                return self._db.execute(
                    "INSERT OR IGNORE INTO items (id, overlap, body) VALUES (?, ?, ?)", values
                ).rowcount
            label = Label(**row["label"])
            known = self._labels("WHERE id = ?", label.id)
            if not known:
                self._insert(label)
            elif known[0] != label:
                raise DataError(f"{where}: label {label.id!r} is another one here; nothing was imported.")
            return int(not known)
        except (KeyError, TypeError, ValueError, sqlite3.IntegrityError) as error:
            raise DataError(
                f"{where} is no item or label as export writes them ({type(error).__name__}: {error}); nothing was "
                "imported."
            ) from error

    def _insert(self, label: Label) -> None:
        values = tuple(label.to_dict().values())
        self._db.execute(f"INSERT INTO labels ({_LABEL}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _labels(self, condition: str, *values: Any) -> list[Label]:
        rows = self._read(f"SELECT {_LABEL} FROM labels l {condition} ORDER BY number", values)
        return [Label(**dict(zip(_LABEL.split(", "), row, strict=True))) for row in rows]

    def _count(self, table: str) -> int:
        ((count,),) = self._read(f"SELECT COUNT(*) FROM {table}")
        return int(count)

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._errors():
            return self._db.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, which no other writer comes between."""
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise DataError(
                f"Cannot use {path or self.path} as a preference store: {error}. If it is none, name another file; if "
                "it is damaged, restore it from a copy; if the disk is full or the folder not writable, make room."
            ) from error


def _same(known: Label, said: tuple[str, ...]) -> Label:
    """The stored label, for one that is handed in again."""
    if (known.item, known.annotator, known.outcome, known.strength, known.note) != said:
        raise DataError(f"The label id {known.id!r} was used for another label; give every label an id of its own.")
    return known


def _item(body: str) -> Item:
    return Item.from_dict(json.loads(body))


def _dumps(value: Any) -> str:
    """One line of ASCII, which holds half a surrogate pair too; what JSON has no word for becomes its text."""
    return json.dumps(value, default=str)


def _storable(text: str) -> str:
    """A text that SQLite can keep: half a surrogate pair becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would end the transaction."""
    pending = ""
    for line in script.splitlines():
        pending += f"{line}\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
