"""A store is a project: people, assignments, settings, pictures, an audit log, jobs, and items of every kind."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from prefrl.data.store.migrations.append_only import append_only, changeable
from prefrl.data.store.texts import epoch, is_exchanged

revision, down_revision = "2", "1"
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ROLES = "role IN ('admin', 'manager', 'reviewer', 'annotator')"
_OUTCOMES = "'first', 'second', 'tie', 'both_bad', 'steps', 'right', 'wrong', 'unsure', 'skip'"


def upgrade() -> None:
    """Make the tables, widen those of version 1, and keep everything that is in them."""
    _move()
    _make_work()
    _make_people()
    _make_rest()
    append_only("labels")
    append_only("events")
    _fill()


def _move() -> None:
    """SQLite cannot change a constraint, so items and labels move into tables that know more; bodies get their own."""
    changeable("labels")
    op.rename_table("labels", "labels_1")
    op.rename_table("items", "items_1")
    _make_items()
    _make_labels()
    op.execute(
        "INSERT INTO items (number, id, overlap, kind) SELECT number, id, overlap, 'pair' FROM items_1 ORDER BY number"
    )
    op.execute("INSERT INTO bodies (number, body) SELECT number, body FROM items_1 ORDER BY number")
    columns = "number, id, item, annotator, version, outcome, strength, note, time"
    op.execute(f"INSERT INTO labels ({columns}, details) SELECT {columns}, '{{}}' FROM labels_1 ORDER BY number")
    op.drop_table("labels_1")
    op.drop_table("items_1")


def _make_items() -> None:
    op.create_table(
        "items",
        sa.Column("number", _Number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("overlap", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="open"),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("is_gold", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("gold", sa.Text),
        sa.Column("given", sa.Integer, nullable=False, server_default="0"),
        sa.Column("skipped", sa.Integer, nullable=False, server_default="0"),
        sa.CheckConstraint("state IN ('open', 'closed', 'adjudication')", name="known_state"),
    )
    op.create_table(
        "bodies",
        sa.Column("number", _Number, sa.ForeignKey("items.number"), primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    order: list[str | sa.TextClause] = ["is_gold", sa.text("priority DESC"), "given", "number"]
    order += ["skipped", "overlap", "state"]
    _index("items_wanted", "items", order, "state = 'open' AND given < overlap")
    _index("items_gold", "items", ["number"], "gold IS NOT NULL")
    _index("items_disputed", "items", ["number"], "state = 'adjudication'")


def _index(name: str, table: str, columns: Sequence[str | sa.TextClause], of: str) -> None:
    """An index of some rows only."""
    op.create_index(name, table, columns, sqlite_where=sa.text(of), postgresql_where=sa.text(of))


def _make_labels() -> None:
    op.create_table(
        "labels",
        sa.Column("number", _Number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("item", sa.Text, sa.ForeignKey("items.id"), nullable=False),
        sa.Column("annotator", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("strength", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("time", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.UniqueConstraint("item", "annotator", "version", name="one_of_a_version"),
        sa.CheckConstraint(f"outcome IN ({_OUTCOMES})", name="known_outcome"),
    )


def _make_work() -> None:
    op.create_table(
        "project",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "assignments",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("item", sa.Text, sa.ForeignKey("items.id"), nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("exchanged", sa.Boolean, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("leased_at", sa.Float, nullable=False),
        sa.Column("lease_until", sa.Float, nullable=False),
        sa.Column("version", sa.Integer, nullable=False, server_default="0"),
        sa.Column("outcome", sa.Text),
        sa.Column("labelled_at", sa.Float),
        sa.UniqueConstraint("item", "person", name="once_a_person"),
        sa.CheckConstraint("state IN ('leased', 'done', 'expired', 'released')", name="known_state"),
    )
    op.create_index("assignments_of_person", "assignments", ["person", "state", "outcome"])
    _index("assignments_leased", "assignments", ["lease_until"], "state = 'leased'")
    op.create_table(
        "flags",
        sa.Column("number", _Number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("item", sa.Text, sa.ForeignKey("items.id"), nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("resolved_by", sa.Text, nullable=False),
        sa.Column("resolved", sa.Float),
    )


def _make_people() -> None:
    op.create_table(
        "people",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("folded", sa.Text, nullable=False, unique=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("password_hash", sa.Text, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.CheckConstraint(_ROLES, name="known_role"),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.Text, primary_key=True),
        sa.Column("person", sa.Text, sa.ForeignKey("people.name"), nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
    )
    op.create_index("sessions_of_person", "sessions", ["person"])
    op.create_table(
        "invitations",
        sa.Column("token_hash", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("used_by", sa.Text, nullable=False),
        sa.CheckConstraint(_ROLES, name="known_role"),
    )


def _make_rest() -> None:
    op.create_table(
        "media",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("seq", _Number, primary_key=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("number", _Number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
        sa.Column("error", sa.Text, nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'running', 'done', 'failed', 'cancelled')", name="known_state"),
    )


_LAST_LABELS = """
SELECT item, annotator, version, outcome,
    (SELECT time FROM labels f WHERE f.item = l.item AND f.annotator = l.annotator AND f.version = 1) AS first_time
FROM labels l
WHERE version = (SELECT MAX(version) FROM labels o WHERE o.item = l.item AND o.annotator = l.annotator)
ORDER BY number
"""
_ASSIGNMENT = """
INSERT INTO assignments
    (id, item, person, exchanged, state, leased_at, lease_until, version, outcome, labelled_at)
VALUES (:id, :item, :person, :exchanged, 'done', :at, :at, :version, :outcome, :at)
"""


def _fill() -> None:
    """An id for the project, an assignment for everybody who labelled something, and the counts of every item."""
    connection, project = op.get_bind(), uuid.uuid4().hex
    made = sa.text("INSERT INTO project (id, created) VALUES (:id, :now)")
    connection.execute(made, {"id": project, "now": time.time()})
    rows = [
        {
            "id": uuid.uuid4().hex,
            "item": row.item,
            "person": row.annotator,
            "exchanged": is_exchanged(project, row.item, row.annotator),
            "at": epoch(row.first_time or ""),
            "version": row.version,
            "outcome": row.outcome,
        }
        for row in connection.execute(sa.text(_LAST_LABELS)).all()
    ]
    if rows:
        connection.execute(sa.text(_ASSIGNMENT), rows)
    count = "(SELECT COUNT(*) FROM assignments a WHERE a.item = items.id AND outcome {} 'skip')"
    op.execute(f"UPDATE items SET given = {count.format('<>')}, skipped = {count.format('=')}")
