"""What the store hands out besides items and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from prefrl.data.comparisons import Outcome

Role = Literal["admin", "manager", "reviewer", "annotator"]
ROLES: tuple[Role, ...] = get_args(Role)
MANAGERS: tuple[Role, ...] = ("admin", "manager")
REVIEWERS: tuple[Role, ...] = ("admin", "manager", "reviewer")  # who may settle what others disagree about
ItemStatus = Literal["open", "closed", "adjudication"]
ITEM_STATUSES: tuple[ItemStatus, ...] = get_args(ItemStatus)
LeaseState = Literal["leased", "done", "expired", "released"]
LEASE_STATES: tuple[LeaseState, ...] = get_args(LeaseState)
JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """What is known to be right of an item.

    ratings  of the steps, where the outcome is steps
    """

    outcome: Outcome
    note: str = ""
    ratings: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An item that a person was given; there is one of each item and person at most, for good.

    exchanged    whether the second completion is shown as A: the same for this person whenever they look
    lease_until  until when the place is kept, in epoch seconds
    version      of this person's label that counts; 0 before there is one
    """

    id: str
    item: str
    person: str
    exchanged: bool
    state: LeaseState
    lease_until: float
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a person is.

    left   items that this person could label now
    total  done, skipped and left together
    quota  most labels of this person; 0 is without an end
    """

    done: int
    skipped: int
    left: int
    total: int
    quota: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemState:
    """Where an item stands.

    labels  people whose label counts, skips left out
    skips   people who skipped it
    leases  people who have it open now
    """

    id: str
    kind: str
    state: ItemStatus
    priority: int
    overlap: int
    labels: int
    skips: int
    leases: int
    gold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A report that something is wrong with an item; `resolved_by` is empty while it is open."""

    id: str
    item: str
    person: str
    reason: str
    note: str
    time: float
    resolved_by: str = ""
    resolved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who may log in; one who is not active may not."""

    name: str
    role: Role
    active: bool
    created: float
    password_hash: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A session of a person: the secret of the cookie, and the one that requests repeat in a header."""

    token: str = field(repr=False)
    csrf: str = field(repr=False)
    person: Person
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a one-time link lets somebody be; a name that is given cannot be chosen.

    resets  whether it is for somebody who has an account, and chooses another password
    """

    role: Role
    name: str
    expires: float
    resets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry of the audit log."""

    seq: int
    time: float
    person: str
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A process that was started for the project."""

    id: str
    kind: str
    state: JobState
    folder: str
    command: tuple[str, ...]
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    error: str = ""
