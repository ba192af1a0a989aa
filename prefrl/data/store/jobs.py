"""Processes that were started for the project, such as training runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import select, update

from prefrl.data.store.engine import Database
from prefrl.data.store.errors import Invalid, NotYours
from prefrl.data.store.records import JOB_STATES, Job, JobState
from prefrl.data.store.schema import AnyRow, jobs
from prefrl.data.store.texts import dumps, storable

_CHANGEABLE = ("state", "folder", "pid", "started", "ended", "error")


class Jobs:
    """The jobs of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, kind: str, folder: str, command: Sequence[str], *, state: JobState = "waiting", id: str = "") -> Job:
        """Note a job that is to be started."""
        job = Job(id=id or uuid.uuid4().hex, kind=kind, state=state, folder=str(folder), command=tuple(command))
        _check_state(state)
        values = {f.name: getattr(job, f.name) for f in fields(job)} | {"command": dumps(list(job.command))}
        with self._database.writing() as connection:
            connection.execute(jobs.insert(), values)
        return job

    def update(self, id: str, **changes: Any) -> Job:
        """Change the state, folder, pid, started, ended or error of a job.

        Raises:
            NotYours: there is no such job.
            Invalid: something else, or an unknown state.
        """
        if wrong := sorted(changes.keys() - set(_CHANGEABLE)):
            raise Invalid(f"Got {wrong[0]!r} of a job; expected {', '.join(_CHANGEABLE)}.")
        if "state" in changes:
            _check_state(changes["state"])
        if "error" in changes:
            changes["error"] = storable(changes["error"])
        with self._database.writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == id).values(changes))
        return self.get(id)

    def get(self, id: str) -> Job:
        """The job of an id.

        Raises:
            NotYours: there is none.
        """
        with self._database.reading() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == id)).one_or_none()
        if row is None:
            raise NotYours(f"There is no job {id!r}.")
        return _job(row)

    def list(self, state: str = "") -> list[Job]:
        """All jobs, or those in a state, in the order they were added."""
        wanted = select(jobs).order_by(jobs.c.number)
        with self._database.reading() as connection:
            return [_job(row) for row in connection.execute(wanted.where(jobs.c.state == state) if state else wanted)]


def _check_state(state: str) -> None:
    if state not in JOB_STATES:
        raise Invalid(f"Got the state {state!r} of a job; expected one of {', '.join(JOB_STATES)}.")


def _job(row: AnyRow) -> Job:
    values = row._asdict()
    del values["number"]
    return Job(**values | {"command": tuple(json.loads(row.command))})
