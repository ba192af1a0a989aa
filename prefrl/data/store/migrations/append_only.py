"""Triggers that let rows be added and nothing else."""

from __future__ import annotations

from alembic import op


def append_only(table: str) -> None:
    """Refuse changes and deletions of the rows of a table, whoever asks."""
    message = f"{table} are append-only"
    if op.get_bind().dialect.name == "sqlite":
        for name, action in ((f"{table}_stay", "UPDATE"), (f"{table}_remain", "DELETE")):
            op.execute(f"CREATE TRIGGER {name} BEFORE {action} ON {table} BEGIN SELECT RAISE(ABORT, '{message}'); END")
        return
    op.execute(
        f"CREATE FUNCTION {table}_stay() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = 'restrict_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_stay()"
    )


def changeable(table: str) -> None:
    """Take the triggers away, for a migration that must rewrite the table."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"DROP TRIGGER {table}_stay")
        op.execute(f"DROP TRIGGER {table}_remain")
        return
    op.execute(f"DROP FUNCTION {table}_stay() CASCADE")
