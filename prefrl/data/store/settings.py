"""The project itself: its id and its settings."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection, select, update

from prefrl.data.project import ProjectSettings
from prefrl.data.store.journal import record
from prefrl.data.store.schema import project
from prefrl.data.store.shapes import check_settings
from prefrl.data.store.texts import dumps

_PROJECT = select(project.c.id, project.c.secret, project.c.settings)


class Project(NamedTuple):
    """The project as one transaction sees it.

    id      browsers know it: it names the cookie
    secret  nobody but the store knows it
    saved   False while nobody chose any settings
    """

    id: str
    secret: str
    settings: ProjectSettings
    saved: bool


def project_of(connection: Connection) -> Project:
    """The project of the store."""
    row = connection.execute(_PROJECT).one()
    return Project(row.id, row.secret, _parsed(row.settings or "{}"), row.settings is not None)


def save_settings(connection: Connection, settings: ProjectSettings, by: str) -> None:
    """Replace the settings; the audit log keeps every version.

    Raises:
        Invalid: something is longer than a page can show and a label can answer, or of another type.
    """
    check_settings(settings)
    text = dumps(settings.to_dict())
    connection.execute(update(project).values(settings=text))
    record(connection, by, "settings", settings.to_dict())


@lru_cache(maxsize=8)
def _parsed(text: str) -> ProjectSettings:
    return ProjectSettings.from_dict(json.loads(text))
