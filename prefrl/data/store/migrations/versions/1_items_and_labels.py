"""Pairs and their labels, as the first version had them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from prefrl.data.store.migrations.append_only import append_only

revision, down_revision = "1", None
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "items",
        sa.Column("number", _Number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("overlap", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
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
        sa.UniqueConstraint("item", "annotator", "version"),
        sa.CheckConstraint("outcome IN ('first', 'second', 'tie', 'skip')"),
    )
    append_only("labels")
