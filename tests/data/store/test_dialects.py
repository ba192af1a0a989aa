"""Every statement can be said to SQLite and to Postgres, and a store says what it needs for the latter."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql import Executable

from prefrl.data.preferences import PreferenceStore
from prefrl.data.store import schema
from prefrl.data.store.engine import Database
from prefrl.errors import DataError

DIALECTS = [sqlite.dialect(), postgresql.dialect()]
MODULES = ["items", "labels", "leasing", "queue", "settings", "submission", "work"]
STATEMENTS = {
    f"{module}.{name}": value
    for module in MODULES
    for name, value in vars(importlib.import_module(f"prefrl.data.store.{module}")).items()
    if isinstance(value, Executable) and hasattr(value, "compile")
}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_statements_compile(dialect):
    assert {"queue.WANTED", "leasing._SWEEP", "labels._RECOUNT", "submission._PLACE"} <= STATEMENTS.keys()
    said = {name: str(statement.compile(dialect=dialect)) for name, statement in STATEMENTS.items()}
    assert all(said.values()) and "LIMIT" in said["queue.WANTED"]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_tables_compile(dialect):
    tables = [str(CreateTable(table).compile(dialect=dialect)) for table in schema.metadata.sorted_tables]
    indexes = [
        str(CreateIndex(index).compile(dialect=dialect))
        for table in schema.metadata.sorted_tables
        for index in table.indexes
    ]
    assert len(tables) == 12
    (wanted,) = (index for index in indexes if "items_wanted" in index)
    assert wanted.endswith("WHERE state = 'open' AND given < overlap")


def test_the_queue_is_read_by_its_indexes(tmp_path):
    """Looking at every item would make each next one slower than the one before."""
    from prefrl.data.store import queue

    with PreferenceStore(tmp_path / "a.db") as store, store._database.reading() as connection:
        plans = {}
        for name in ("WANTED", "GOLD", "DISPUTED", "LEFT", "LEFT_MINE"):
            statement = getattr(queue, name).params(person="p", now=0.0, limit=1, skip_after=2)
            said = statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {said}").all()
            plans[name] = [row.detail for row in rows]
    assert plans["WANTED"][0] == "SCAN items USING INDEX items_wanted"
    assert not [step for step in plans["WANTED"] if "TEMP B-TREE" in step]
    assert not [step for step in plans["GOLD"] if "TEMP B-TREE" in step]
    assert plans["GOLD"][0].startswith("SCAN items USING INDEX items_gold")
    assert plans["DISPUTED"][0].startswith("SCAN items USING INDEX items_disputed")
    assert plans["LEFT"] == ["SCAN items USING COVERING INDEX items_wanted"]
    assert not [step for steps in plans.values() for step in steps if step.startswith("SCAN") and "USING" not in step]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("mysql://me@host/db", "of the kind 'mysql'.*postgresql://"),
        ("sqlite:///a.db", "of the kind 'sqlite'.*the path of a file"),
        ("://", "cannot be read"),
    ],
)
def test_places_that_are_none(place, says):
    with pytest.raises(DataError, match=says):
        PreferenceStore(place)


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://me:se%40cret@host:1/db?sslmode=require",
        "postgres://me@host:1/db?password=se%40cret&sslmode=require",
    ],
)
def test_a_password_is_told_apart_from_the_address(place):
    database = Database(place)
    assert database.address == database.name == "postgresql://me@host:1/db?sslmode=require"
    assert database.environment == {"PGPASSWORD": "se@cret"}


def test_an_address_without_a_password_is_told_as_it_is(tmp_path, monkeypatch):
    database = Database("postgresql://me@host/db")
    assert (database.address, database.environment) == ("postgresql://me@host/db", {})
    monkeypatch.chdir(tmp_path)
    database = Database("a.db")
    assert (database.address, database.name, database.environment) == (str(tmp_path / "a.db"), "a.db", {})


def test_a_driver_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DataError, match=r"pip install 'psycopg\[binary\]'"):
        PreferenceStore("postgresql://me@localhost/db")


def test_the_database_library_is_loaded_when_a_store_is_opened():
    script = (
        "import sys, prefrl.data, prefrl.data.store, prefrl.data.preferences\nassert 'sqlalchemy' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
