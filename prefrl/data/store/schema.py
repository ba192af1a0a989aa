"""The tables as they are now; `migrations` makes them and says how older ones become these.

JSON is kept as text: the same bytes in and out, and half a surrogate pair, which no database has a type for, as its
escape. What is counted (`items.given`, `items.skipped`, and `version` and `outcome` of assignments) follows from the
labels and is kept beside them in the same transaction, so that the next item is found by an index; `check` recounts.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from prefrl.data.comparisons import OUTCOMES
from prefrl.data.store.records import ITEM_STATUSES, JOB_STATES, LEASE_STATES, ROLES

AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"  # of a query whose columns are not told to the type checker
metadata = MetaData()
_Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up in INTEGER columns only


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"known_{column}")


project = Table(
    "project",
    metadata,
    Column("id", Text, primary_key=True),
    Column("settings", Text),  # nobody saved any while it is NULL
    Column("created", Float, nullable=False),
    Column("secret", Text, nullable=False),  # seeds what must not be guessed: which side is A, and known answers
)
items = Table(
    "items",
    metadata,
    Column("number", _Number, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("overlap", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("is_gold", Boolean, nullable=False, server_default=false()),
    Column("gold", Text),
    Column("given", Integer, nullable=False, server_default="0"),
    Column("skipped", Integer, nullable=False, server_default="0"),
    _one_of("state", ITEM_STATUSES),
)
bodies = Table(  # apart from what changes with every label: they are long
    "bodies",
    metadata,
    Column("number", _Number, ForeignKey("items.number"), primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
WANTED = text("state = 'open' AND given < overlap")
Index(
    "items_wanted",
    items.c.is_gold,
    items.c.priority.desc(),
    items.c.given,
    items.c.number,
    items.c.skipped,  # and what else the queue looks at
    items.c.overlap,
    items.c.state,
    sqlite_where=WANTED,
    postgresql_where=WANTED,
)
KNOWN = text("gold IS NOT NULL")
Index("items_gold", items.c.number, sqlite_where=KNOWN, postgresql_where=KNOWN)
DISPUTED = text("state = 'adjudication'")
Index("items_disputed", items.c.number, sqlite_where=DISPUTED, postgresql_where=DISPUTED)

assignments = Table(
    "assignments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("item", Text, ForeignKey("items.id"), nullable=False),
    Column("person", Text, nullable=False),
    Column("exchanged", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("leased_at", Float, nullable=False),
    Column("lease_until", Float, nullable=False),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("outcome", Text),
    Column("labelled_at", Float),
    UniqueConstraint("item", "person", name="once_a_person"),
    _one_of("state", LEASE_STATES),
)
Index("assignments_of_person", assignments.c.person, assignments.c.state, assignments.c.outcome)
LEASED = text("state = 'leased'")
Index("assignments_leased", assignments.c.lease_until, sqlite_where=LEASED, postgresql_where=LEASED)

labels = Table(
    "labels",
    metadata,
    Column("number", _Number, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("item", Text, ForeignKey("items.id"), nullable=False),
    Column("annotator", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("strength", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("time", Text, nullable=False),
    Column("details", Text, nullable=False),
    UniqueConstraint("item", "annotator", "version", name="one_of_a_version"),
    _one_of("outcome", OUTCOMES),
)
flags = Table(
    "flags",
    metadata,
    Column("number", _Number, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("item", Text, ForeignKey("items.id"), nullable=False),
    Column("person", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("time", Float, nullable=False),
    Column("resolved_by", Text, nullable=False),
    Column("resolved", Float),
)
people = Table(
    "people",
    metadata,
    Column("name", Text, primary_key=True),
    Column("folded", Text, nullable=False, unique=True),  # nobody passes for Ann by calling themselves ann
    Column("role", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created", Float, nullable=False),
    _one_of("role", ROLES),
)
sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", Text, primary_key=True),
    Column("person", Text, ForeignKey("people.name"), nullable=False),
    Column("expires", Float, nullable=False),
)
Index("sessions_of_person", sessions.c.person)
invitations = Table(
    "invitations",
    metadata,
    Column("token_hash", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("expires", Float, nullable=False),
    Column("used_by", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("resets", Boolean, nullable=False),
    _one_of("role", ROLES),
)
media = Table(
    "media",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
events = Table(
    "events",
    metadata,
    Column("seq", _Number, primary_key=True),
    Column("time", Float, nullable=False),
    Column("person", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
)
jobs = Table(
    "jobs",
    metadata,
    Column("number", _Number, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("pid", Integer),
    Column("started", Float),
    Column("ended", Float),
    Column("error", Text, nullable=False),
    _one_of("state", JOB_STATES),
)
