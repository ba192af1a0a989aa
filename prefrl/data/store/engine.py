"""Connections: reads that see one moment and do not wait, and one writer at a time, here and in other processes."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, RootTransaction, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from prefrl.data.store.writer import Writer
from prefrl.errors import DataError

APPLICATION = 0x70_72_66_6C  # "prfl": tells our SQLite files, and our lock of Postgres, from others
BUSY_SECONDS = 60
_CONNECTIONS = 32  # that are kept; more are opened while they are needed


class Database:
    """A SQLite file, or a Postgres database by its URL.

    Args:
        place: a path, or a URL such as postgresql://user@host/name.

    Attributes:
        path: the file; None of Postgres.
        name: for messages.
        address: the file, or the URL without its password: with `environment` set, it opens the same store elsewhere.
        environment: the password as Postgres's own library reads it; empty where there is none.

    Raises:
        DataError: a URL of another kind, or one whose driver is not installed.
    """

    def __init__(self, place: str | Path) -> None:
        url = _url(place)
        self.path = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
        self.address, self.environment = _told(url)
        self.name = str(self.path or self.address)
        self.engine = _engine(url)
        moment = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reads = self.engine.execution_options(**moment)
        self._writer = Writer(self._begin)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return self.path is not None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment and waits for nobody."""
        with self.errors(), self._reads.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer comes between; it is on the disk when the block ends."""
        with self.errors(), self._writer.turn() as connection:
            yield connection

    def prepare(self) -> None:
        """Let readers and the writer of a file not wait for one another; it stays so."""
        if self.is_sqlite:
            with self.errors(), contextlib.closing(self.engine.raw_connection()) as connection:
                _keep_log(connection.cursor())

    def look_over(self) -> None:
        """Look for damage of a file, quickly.

        Raises:
            DataError: there is some.
        """
        if self.is_sqlite:
            with self.reading() as connection:
                health = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if health != "ok":
                raise DataError(f"The preference store {self.name} is damaged ({health}); restore it from a copy.")

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the database as ours."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise _unusable(self.name, getattr(error, "orig", None) or error) from error

    def _begin(self) -> RootTransaction:
        connection = self.engine.connect().execution_options(prefrl_writes=True)
        try:
            transaction = connection.begin()
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({APPLICATION})")
        except BaseException:
            connection.close()
            raise
        return transaction

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _keep_log(cursor: Any) -> None:
    """Write-ahead logging; SQLite does not wait for others where a file's kind of journal is changed, so this does."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.02)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Errors of the disk, on the way to a file, as ours."""
    try:
        yield
    except OSError as error:
        raise _unusable(str(path), error) from error


def _unusable(name: str, error: BaseException) -> DataError:
    return DataError(
        f"Cannot use {name} as a preference store: {error}. If it is none, name another file; if it is damaged, "
        "restore it from a copy; if the disk is full or the folder not writable, make room; if another program keeps "
        "it locked, end that program."
    )


def _url(place: str | Path) -> URL:
    if isinstance(place, Path) or "://" not in place:
        return URL.create("sqlite", database=str(Path(place)))
    try:
        url = make_url(place)
    except ArgumentError:
        raise DataError("Got a URL of a store that cannot be read; expected postgresql://user@host/name.") from None
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "postgresql":
        return url
    raise DataError(
        f"Got a store of the kind {url.drivername!r}; expected the path of a file, or postgresql://user@host/name."
    )


def _told(url: URL) -> tuple[str, dict[str, str]]:
    """Where a store is, for other processes and for people, and its password apart."""
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").absolute()), {}
    asked = url.query.get("password")
    password = url.password or (asked if isinstance(asked, str) else None)
    query = {name: value for name, value in url.query.items() if name != "password"}
    plain = URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database, query)
    return plain.render_as_string(), {} if password is None else {"PGPASSWORD": password}


def _engine(url: URL) -> Engine:
    more: dict[str, Any] = {"pool_size": _CONNECTIONS, "max_overflow": -1}
    if url.get_backend_name() == "sqlite":
        arguments = {"timeout": BUSY_SECONDS, "isolation_level": None, "check_same_thread": False}
        engine = create_engine(url, connect_args=arguments, **more)
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
        return engine
    try:
        return create_engine(url, pool_pre_ping=True, **more)
    except ImportError as error:
        raise DataError(f"A store in Postgres needs a driver ({error}). Type: pip install 'psycopg[binary]'") from error


def _on_connect(raw: Any, _: Any) -> None:
    raw.execute("PRAGMA synchronous = FULL")  # a label is somebody's time: durable on return
    raw.execute("PRAGMA foreign_keys = ON")


def _on_begin(connection: Connection) -> None:
    """Begin ourselves: the driver would only at the first change, when another writer may have come between."""
    immediate = connection.get_execution_options().get("prefrl_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
