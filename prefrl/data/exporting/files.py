"""Exports as files and as datasets; the same bytes for the same labels."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefrl.data.exporting.rows import Row
from prefrl.errors import ConfigError, DataError, did_you_mean

SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Rows, by split, and what is not among them.

    splits    rows by the name of their split: `train`, and `test` where a share is held out
    left_out  how many were left out, by reason
    notes     what else is to be known of the rows, with how many of them it concerns
    """

    splits: Mapping[str, Sequence[Row]]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """The rows of all splits."""
        return [row for rows in self.splits.values() for row in rows]

    def summary(self) -> str:
        """One line for people, such as `58 rows (train 50, test 8); left out: 2 called a tie, 1 without a label`."""
        total = f"{len(self.rows)} row{'s' if len(self.rows) != 1 else ''}"
        if len(self.splits) > 1:
            total += f" ({', '.join(f'{name} {len(rows)}' for name, rows in self.splits.items())})"
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        remarks = "".join(f"; {count} {note}" for note, count in self.notes.items())
        return f"{total}; left out: {reasons or 'nothing'}{remarks}"

    def write(self, path: str | Path) -> list[Path]:
        """Write .jsonl or .parquet; of several splits each one has its name before the suffix.

        Returns:
            The files, all of which are whole or not there.

        Raises:
            ConfigError: another suffix.
            DataError: there are no rows, or the file cannot be written.
        """
        target = Path(path)
        if target.suffix not in SUFFIXES:
            raise ConfigError(
                f"An export is written to {', '.join(SUFFIXES)}; got {str(path)!r}."
                f"{did_you_mean(target.suffix, SUFFIXES)}"
            )
        if not self.rows:
            raise DataError(f"There is nothing to export: {self.summary()}.")
        several = len(self.splits) > 1
        files = {target.with_suffix(f".{name}{target.suffix}") if several else target: name for name in self.splits}
        for file, name in files.items():
            _write(file, self.splits[name])
        return list(files)

    def dataset(self) -> Any:
        """A `datasets.Dataset`, or a `DatasetDict` of several splits."""
        from datasets import Dataset, DatasetDict

        made = {name: Dataset(_table(rows)) for name, rows in self.splits.items()}
        return DatasetDict(made) if len(made) > 1 else next(iter(made.values()))


def _write(path: Path, rows: Sequence[Row]) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.suffix == ".jsonl":
            scratch.write_bytes(b"".join(_line(row) for row in rows))
        else:
            from pyarrow import parquet

            parquet.write_table(_table(rows), scratch)
        os.replace(scratch, path)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error}. Name a file in a folder that can be written.") from error
    finally:
        scratch.unlink(missing_ok=True)


def _line(row: Row) -> bytes:
    """One JSON object; half a surrogate pair, which UTF-8 has no bytes for, as the escape that JSON has for it."""
    return json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"


def _table(rows: Sequence[Row]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist([_encodable(row) for row in rows])


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {key: _encodable(inner) for key, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list | tuple) else value
