"""Files of strangers: read within limits, from the folder of uploads and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefrl.data.tables import Table, load_hub, load_table, table_of
from prefrl.errors import DataError

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
_BATCH = 64  # rows of a parquet file that are unpacked at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that is read of an upload.

    Attributes:
        bytes: of the file; a file of JSON takes some ten times as much memory.
        unpacked: of a packed file once it is unpacked.
        rows: of the table.
    """

    bytes: int = 100_000_000
    unpacked: int = 400_000_000
    rows: int = 100_000


def uploaded(path: str | Path, folder: str | Path) -> Path:
    """A file of the folder of uploads.

    Raises:
        DataError: it is outside or leads there, is no file, or of a kind that is not read.
    """
    home, given = Path(folder).resolve(), Path(path)
    if not given.resolve().is_relative_to(home) or not given.is_file():
        raise DataError(f"{given.name!r} was not uploaded here. Upload it, and import that.")
    if given.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{given.name} is no file that can be imported; expected {', '.join(SUFFIXES)}. Unpack an archive first."
        )
    return given.resolve()


def read_upload(path: Path, limits: Limits | None = None) -> Table:
    """The rows of a file.

    Raises:
        DataError: it cannot be read, or there is more in it than the limits allow.
    """
    limits = limits or Limits()
    size = path.stat().st_size
    if size > limits.bytes:
        raise DataError(f"{path.name} has {size} bytes; at most {limits.bytes} are read. Split it into several files.")
    if path.suffix.lower() == ".parquet":
        rows = list(_unpacked(path, limits))
        return table_of(rows, path.name)
    try:
        table = load_table(path, limit=limits.rows + 1)
    except RecursionError as error:
        raise DataError(f"{path.name} nests lists or objects too deeply to be data. Nothing was read.") from error
    return _within(table_of(table.rows, path.name), limits)


def read_hub(name: str, limits: Limits | None = None) -> Table:
    """The first rows of a dataset of the hub, whatever files there are here.

    Raises:
        DataError: it is no name of a dataset, or it is out of reach.
    """
    return load_hub(name, limit=(limits or Limits()).rows)


def _within(table: Table, limits: Limits) -> Table:
    if len(table.rows) > limits.rows:
        raise DataError(
            f"{table.origin} has more than {limits.rows} rows; at most that many are read at once. Split it into "
            "several files."
        )
    return table


def _unpacked(path: Path, limits: Limits) -> Iterator[dict[str, Any]]:
    """Rows of a parquet file, a few at a time: a small file can unpack to more than there is memory."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = size = 0
    try:
        file = parquet.ParquetFile(path)
        groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        _check_size(path, file.metadata.num_rows, size, limits)
        size = 0
        for batch in file.iter_batches(batch_size=_BATCH):
            rows, size = rows + batch.num_rows, size + batch.nbytes
            _check_size(path, rows, size, limits)
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as parquet: {str(error).splitlines()[0][:200]}") from error


def _check_size(path: Path, rows: int, size: int, limits: Limits) -> None:
    if rows > limits.rows or size > limits.unpacked:
        raise DataError(
            f"{path.name} unpacks to {rows} rows of {size} bytes or more; at most {limits.rows} rows and "
            f"{limits.unpacked} bytes are read. Split it into several files."
        )
