"""Stores of earlier versions are brought up to date whole; those of later ones, and other databases, are left alone."""

from __future__ import annotations

import sqlite3

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from old_stores import SAID, first_version
from stores import at_once, label_next, pair, pairs

from prefrl.data.comparisons import Label
from prefrl.data.preferences import PreferenceStore
from prefrl.data.store import schema
from prefrl.data.store.engine import Database
from prefrl.data.store.migrations import VERSION
from prefrl.errors import DataError


def test_a_store_of_the_first_version_keeps_everything(tmp_path):
    first_version(tmp_path / "a.db")
    with PreferenceStore(tmp_path / "a.db", create=False) as store:
        assert store.items() == pairs(3, overlap=2)
        assert store.labels(all_versions=True) == [
            Label(
                id=f"l{n}",
                item=item,
                annotator=annotator,
                version=version,
                outcome=outcome,
                strength=strength,
                note=note,
                time=time,
            )
            for n, (item, annotator, version, outcome, strength, note, time) in enumerate(SAID)
        ]
        assert [(label.id, label.outcome) for label in store.labels()] == [
            ("l1", "tie"),
            ("l2", "second"),
            ("l3", "skip"),
        ]
        assert store.check() == []
        states = store.item_states()
        assert [(state.labels, state.skips) for state in states.values()] == [(2, 0), (0, 0), (0, 1)]
        assert [item.id for item in store.open_items("eve")] == ["i1", "i2"]
        assert {item for item in (label_next(store, "ann") for _ in range(3))} == {"i1", "i2", None}
        assert store.check() == []


def test_a_migrated_store_is_like_a_new_one(tmp_path):
    first_version(tmp_path / "a.db")
    for name in ("a.db", "b.db"):
        with PreferenceStore(tmp_path / name):
            pass
    migrated, made = (structure(tmp_path / name) for name in ("a.db", "b.db"))
    assert migrated == made
    assert [pragma(tmp_path / "a.db", name) for name in ("application_id", "user_version")] == [1886545516, VERSION]


def structure(path):
    with sqlite3.connect(path) as db:
        found = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    db.close()
    return found


def pragma(path, name, value=""):
    with sqlite3.connect(path) as db:
        found = db.execute(f"PRAGMA {name} {value}").fetchone()
    db.close()
    return found and found[0]


def test_many_open_an_old_store_at_once(tmp_path):
    first_version(tmp_path / "a.db")
    ids = []

    def opens():
        with PreferenceStore(tmp_path / "a.db") as store:
            ids.append((store.project_id, len(store.labels(all_versions=True))))

    assert at_once([opens] * 6) == []
    assert len(set(ids)) == 1 and ids[0][1] == 4


def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    first_version(tmp_path / "a.db")
    before = structure(tmp_path / "a.db")

    def breaks(*_):
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("uuid.uuid4", breaks)  # the last step makes ids
        with pytest.raises(DataError, match="disk full"):
            PreferenceStore(tmp_path / "a.db")
    assert structure(tmp_path / "a.db") == before and pragma(tmp_path / "a.db", "user_version") == 1
    with PreferenceStore(tmp_path / "a.db") as store:
        assert len(store.labels(all_versions=True)) == 4


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "a.db"
    with PreferenceStore(path) as store:
        store.add_items([pair()])
    pragma(path, "user_version", f"= {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(DataError, match=f"of version {VERSION + 1}, made by a newer prefrl.*Upgrade prefrl"):
        PreferenceStore(path)
    assert path.read_bytes() == before


def test_the_tables_are_those_of_the_schema(place):
    with PreferenceStore(place):
        pass
    database = Database(place)
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, schema.metadata) == []
    database.close()


def test_folders_with_odd_names(tmp_path):
    path = tmp_path / "50 % #1?" / "deep" / "preferences.db"
    with PreferenceStore(path) as store:
        store.add_items([pair()])
    assert path.is_file() and PreferenceStore(path, create=False).close() is None
