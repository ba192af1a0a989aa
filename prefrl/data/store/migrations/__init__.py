"""Versions of the tables, and how a store becomes one of the present version when it is opened."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from prefrl.data.store.engine import APPLICATION, Database
from prefrl.errors import DataError

VERSION = 3  # of the tables; the name of the newest file in versions/ begins with it
_TABLE = "alembic_version"


def migrate(database: Database, *, create: bool) -> None:
    """Make the tables where there are none, and bring older ones up to date: all of it or nothing.

    Raises:
        DataError: there are none and none may be made, it is another kind of database, or one of a newer version.
    """
    with database.reading() as connection:  # before anything is changed: the file may be somebody else's
        found = _version(connection, database)
    if found == 0 and not create:
        raise DataError(f"{database.name} is empty; expected a preference store. prefrl loop makes one.")
    database.prepare()
    if found < VERSION:
        with database.writing() as connection:  # two who open a store at once must not both make its tables
            if _version(connection, database) < VERSION:
                _upgrade(connection, _version(connection, database))
    database.look_over()


def _version(connection: Connection, database: Database) -> int:
    """The version of the tables, 0 of an empty database."""
    tables = inspect(connection).get_table_names()
    version = application = 0
    if database.is_sqlite:
        version, application = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
            for name in ("user_version", "application_id")
        )
    elif _TABLE in tables:
        version = int(connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalar_one())
        application = APPLICATION
    if not tables and not application:
        return 0
    if application != APPLICATION or version < 1:
        raise DataError(f"{database.name} is another kind of database; expected a preference store.")
    if version > VERSION:
        raise DataError(
            f"{database.name} is a preference store of version {version}, made by a newer prefrl; this one reads up to "
            f"version {VERSION}. Upgrade prefrl, or open a backup that is older."
        )
    return version


def _upgrade(connection: Connection, found: int) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    if found == 1:  # made before migrations were counted by alembic
        command.stamp(config, "1")
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
