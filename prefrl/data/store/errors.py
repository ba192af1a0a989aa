"""Why a request to the store is refused."""

from __future__ import annotations

from prefrl.errors import DataError


class NotYours(DataError):
    """No such thing for this person: an unknown id and somebody else's are told apart by nothing."""


class Conflict(DataError):
    """Something else was stored in the meantime, or under the same id, or it is too late for a change."""


class Full(DataError):
    """The item, or the person, has all the labels that were asked for."""


class Invalid(DataError):
    """A value that the project does not allow."""
