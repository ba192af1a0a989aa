"""Stores as earlier versions made them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from stores import pairs

FIRST = """
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
PRAGMA application_id = 1886545516;
PRAGMA user_version = 1;
"""
SAID = [
    ("i0", "ann", 1, "first", "much", "half a pair \\ud800", "2026-01-01T00:00:00.000+00:00"),
    ("i0", "bob", 1, "tie", "", "", "2026-01-02T00:00:00.000+00:00"),
    ("i0", "ann", 2, "second", "", "", "2026-01-03T00:00:00.000+00:00"),
    ("i2", "bob", 1, "skip", "", "", "2026-01-04T00:00:00.000+00:00"),
]


def first_version(path: Path) -> None:
    """A store as the first version made it, with three items and four labels."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(FIRST)
        for item in pairs(3, overlap=2):
            body = json.dumps(item.to_dict())
            db.execute("INSERT INTO items (id, overlap, body) VALUES (?, ?, ?)", (item.id, item.overlap, body))
        for n, said in enumerate(SAID):
            db.execute(
                "INSERT INTO labels (id, item, annotator, version, outcome, strength, note, time) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (f"l{n}", *said),
            )
    db.close()


def second_version(path: Path) -> None:
    """Make a store of the third version what the second one was."""
    db = sqlite3.connect(path)
    with db:
        db.execute("ALTER TABLE project DROP COLUMN secret")
        db.execute("ALTER TABLE invitations DROP COLUMN made_by")
        db.execute("ALTER TABLE invitations DROP COLUMN resets")
        db.execute("UPDATE alembic_version SET version_num = '2'")
        db.execute("PRAGMA user_version = 2")
    db.close()
