"""A secret of the project, and links that know who made them.

Nobody works out which side is A from the id of the project, which browsers know; assignments that there are keep their
sides. A link for a new password is told from one for somebody new, and ends with what its maker may do.
"""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa
from alembic import op

revision, down_revision = "3", "2"
_ROLES = "role IN ('admin', 'manager', 'reviewer', 'annotator')"


def upgrade() -> None:
    """Move both into tables with more columns: SQLite adds none that must not be empty."""
    op.rename_table("project", "project_2")
    op.create_table(
        "project",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
    )
    _fill("INSERT INTO project SELECT id, settings, created, :secret FROM project_2", secret=secrets.token_hex(32))
    op.drop_table("project_2")
    _move_invitations()


def _move_invitations() -> None:
    op.rename_table("invitations", "invitations_2")
    op.create_table(
        "invitations",
        sa.Column("token_hash", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("used_by", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("resets", sa.Boolean, nullable=False),
        sa.CheckConstraint(_ROLES, name="known_role"),
    )
    _fill(
        "INSERT INTO invitations SELECT token_hash, COALESCE((SELECT role FROM people p WHERE p.name = i.name), role), "
        "name, expires, used_by, '', EXISTS (SELECT 1 FROM people p WHERE p.name = i.name) FROM invitations_2 i"
    )
    op.drop_table("invitations_2")


def _fill(words: str, **given: Any) -> None:
    op.get_bind().execute(sa.text(words), given)
