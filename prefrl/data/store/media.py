"""Pictures by the hash of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from prefrl.data.store.engine import Database
from prefrl.data.store.errors import Invalid, NotYours
from prefrl.data.store.schema import media

TYPES = ("image/gif", "image/jpeg", "image/png", "image/webp")  # pictures that can hold no program


class Media:
    """The pictures of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, type: str, body: bytes) -> str:
        """Keep a picture; its hash. The same one is kept once.

        Raises:
            Invalid: another type than those of `TYPES`.
        """
        if type not in TYPES:
            raise Invalid(f"Got a picture of the type {type!r}; expected one of {', '.join(TYPES)}.")
        name = hashlib.sha256(body).hexdigest()
        with self._database.writing() as connection:
            insert_media(connection, [{"hash": name, "type": type, "body": body}])
        return name

    def get(self, hash: str) -> tuple[str, bytes]:
        """The type and the bytes of a picture.

        Raises:
            NotYours: there is none of that hash.
        """
        wanted = select(media.c.type, media.c.body).where(media.c.hash == hash)
        with self._database.reading() as connection:
            row = connection.execute(wanted).one_or_none()
        if row is None:
            raise NotYours("There is no such picture.")
        return row.type, bytes(row.body)


def insert_media(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep pictures that are not here yet."""
    for row in rows:
        if connection.execute(select(media.c.hash).where(media.c.hash == row["hash"])).one_or_none() is None:
            connection.execute(media.insert(), row)
