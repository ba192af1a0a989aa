"""Rows from a file, a list, a `datasets.Dataset` or the hub, before anyone asks what they mean."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from prefrl.data.hub import offline, silence
from prefrl.data.tasks import task_rows
from prefrl.errors import ConfigError, DataError, did_you_mean

DEFAULT_SPLIT = "train"
STORE = "preferences.db"  # in the folder of a project
HELD_OUT = 0.1  # share of the prompts of a store that #test names
_LONGEST_CELL = 100_000_000  # characters of CSV; Python's own limit of 131072 is less than one long answer has
_HUB_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]+))??(?::(?P<split>[\w.-]+))?")
_COLUMN_NAME = re.compile(r"[^\W\d][\w .()/-]{0,63}")

Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as the source had them.

    columns  the union of the rows' keys, in the order they first appear
    origin   where the rows came from, for messages
    """

    rows: list[dict[str, Any]]
    columns: tuple[str, ...]
    origin: str

    def rename(self, columns: Mapping[str, str]) -> Table:
        """The same table with columns renamed, such as `{"question": "prompt"}`.

        Raises:
            DataError: a column is not there, or a new name is already taken.
        """
        for old, new in columns.items():
            if old not in self.columns:
                raise DataError(
                    f"{self.origin} has no column {old!r} to rename; it has {', '.join(self.columns)}."
                    f"{did_you_mean(old, self.columns)}"
                )
            if new in self.columns and new not in columns:
                raise DataError(f"{self.origin} has a column {new!r} already; {old!r} cannot be renamed to it.")
        rows = [{columns.get(key, key): value for key, value in row.items()} for row in self.rows]
        return Table(rows, tuple(columns.get(name, name) for name in self.columns), self.origin)


def load_table(source: Any, *, split: str | None = None, limit: int | None = None) -> Table:
    """Read a dataset.

    Args:
        source: a path (.jsonl, .json, .parquet, .csv); a preference store (.db) or the folder of a project, whose
            labelled pairs are read, all or those of the part `#train` or `#test`; a list of dicts, a
            `datasets.Dataset`, or a hub id: `org/name`, `org/name:split` or `org/name:config:split`.
        split: split of a hub dataset or a `DatasetDict`; `train` when not given.
        limit: read only this many rows from the top.

    Raises:
        DataError: the source is missing, empty, malformed or out of reach.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it is the number of rows to read, at least 1.")
    if isinstance(source, str | Path):
        rows, origin = _from_name(str(source), split)
    elif hasattr(source, "column_names"):
        rows, origin = _from_dataset(source, split), "the dataset"
    elif isinstance(source, Sequence):
        _no_split(split, "a list")
        rows, origin = _objects(source, "row", "the list"), "the list"
    else:
        raise DataError(f"Got {type(source).__name__}; a dataset is a path, hub id, list of dicts or datasets.Dataset.")
    return table_of(list(islice(rows, limit)), origin)


def load_hub(name: str, *, limit: int) -> Table:
    """The first rows of a dataset of the hub, of which no more is fetched; a file of that name does not matter.

    Raises:
        DataError: the name is none of a dataset, or it is out of reach.
    """
    hub = _HUB_ID.fullmatch(name)
    if hub is None or name.startswith(".") or Path(hub["name"]).exists():  # which `datasets` would read in its place
        raise DataError(
            f"{name!r} names no dataset of the hub; expected org/name, org/name:split or org/name:config:split."
        )
    return table_of(list(islice(_from_hub(hub, None, streaming=True), limit)), name)


def table_of(rows: list[dict[str, Any]], origin: str) -> Table:
    """Rows with their columns, which may not all have the same ones.

    Raises:
        DataError: there are none.
    """
    if not rows:
        raise DataError(f"{origin} has no rows; at least one is needed.")
    return Table(rows, tuple(dict.fromkeys(key for row in rows for key in row)), origin)


def _from_name(name: str, split: str | None) -> tuple[Rows, str]:
    if name.startswith("task:"):
        _no_split(split, f"the built-in task {name}")
        return iter(task_rows(name)), name
    store, _, part = name.partition("#")
    path = Path(store).expanduser()
    if store.startswith("postgresql") or path.suffix == ".db" or (path / STORE).is_file():
        _no_split(split, f"the preference store {store}")
        return _from_store(str(path / STORE) if path.is_dir() else store, part), name
    path = Path(name).expanduser()
    hub = _HUB_ID.fullmatch(name)
    if not path.exists() and hub is not None and not _looks_like_file(path):
        return _from_hub(hub, split), name
    _no_split(split, f"the file {name}")
    return _from_file(path), name


def _from_store(path: str, part: str) -> Rows:
    """Pairs of a preference store, one a label, under the names that people have; or a part of its prompts."""
    from prefrl.data.exporting import Choices, Labelled, export
    from prefrl.data.preferences import PreferenceStore

    if part not in ("", "train", "test"):
        raise DataError(
            f"{path}#{part}: a preference store has the parts #train and #test.{did_you_mean(part, ('train', 'test'))}"
        )
    choices = Choices(votes="each", ties="soft", both_bad="soft", names=True, held_out=HELD_OUT if part else 0.0)
    with PreferenceStore(path, create=False) as store:
        made = export(Labelled.of(store), choices)
    if not made.rows:
        raise DataError(f"{path} has no labelled pairs to train on ({made.summary()}). Label some first.")
    return iter(made.splits[part or DEFAULT_SPLIT])


def _looks_like_file(path: Path) -> bool:
    """True for names that can only be a path: a known suffix, absolute, dotted, or in an existing folder."""
    if path.suffix.lower() in _READERS or path.is_absolute() or path.parts[0] == "..":
        return True
    return bool(path.suffix) and path.parent.is_dir()


def _no_split(split: str | None, what: str) -> None:
    if split is not None:
        raise DataError(
            f"split={split!r} was given with {what}, which has no splits. Leave it out, or name another file."
        )


def _from_hub(hub: re.Match[str], split: str | None, *, streaming: bool = False) -> Rows:
    if split is not None and hub["split"] is not None:
        raise DataError(f"{hub[0]!r} names a split, and split={split!r} was given too; give one of them.")
    from datasets import load_dataset

    try:
        how: dict[str, Any] = {"split": split or hub["split"] or DEFAULT_SPLIT} | (
            {"streaming": True} if streaming else {}
        )
        with offline() if silence(hub["name"], "README.md", "dataset") else nullcontext():
            data: Any = load_dataset(hub["name"], hub["config"], **how)
    except Exception as error:  # the hub client, the file readers and the network each raise their own
        first = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"Cannot load {hub[0]!r}: there is no such file here, and the hub gave no dataset of that name. "
            "Check the spelling, the split and the connection, or name a local file "
            f"({', '.join(_READERS)}). ({type(error).__name__}: {first[:200]})"
        ) from error
    return iter(data)


def _from_dataset(data: Any, split: str | None) -> Rows:
    if isinstance(data, Mapping):
        name = split or (DEFAULT_SPLIT if DEFAULT_SPLIT in data or len(data) != 1 else next(iter(data)))
        if name not in data:
            known = ", ".join(data)
            raise DataError(f"The dataset has no split {name!r}; it has {known}.{did_you_mean(name, data)}")
        data = data[name]
    else:
        _no_split(split, "a single dataset")
    return iter(data)


def _from_file(path: Path) -> Rows:
    if not path.exists():
        raise DataError(f"The file {path} does not exist.{_nearby(path)}")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name one file in it.{_nearby(path / 'data')}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path} has {f'the suffix {path.suffix!r}' if path.suffix else 'no suffix'}; files that can be "
            f"read: {', '.join(_READERS)}.{did_you_mean(path.suffix, _READERS)}"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes).")
    return reader(path)


def _nearby(path: Path) -> str:
    """What to type instead: the nearest name, else the data files in the same folder."""
    folder = path.parent
    if not folder.is_dir():
        return f" Its folder {folder} does not exist either."
    names = sorted(p.name for p in folder.iterdir() if p.suffix in _READERS)
    listed = f" There is {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}." if names else ""
    return did_you_mean(path.name, names) or listed


def _objects(values: Iterable[Any], unit: str, origin: str) -> Rows:
    for number, value in enumerate(values, start=1):
        yield _object(value, unit, number, origin)


def _object(value: Any, unit: str, number: int, origin: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(
            f"{origin} {unit} {number} is {_shown(value)}, expected an object with columns, "
            'such as {"prompt": "...", "completion": "..."}.'
        )
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file, a byte-order mark left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8.") from error


def _read_jsonl(path: Path) -> Rows:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is not JSON ({error}): {line.strip()[:80]!r}. "
                "Every line of a .jsonl file is one JSON object."
            ) from error
        yield _object(value, "line", number, str(path))


def _read_json(path: Path) -> Rows:
    try:
        values = json.loads("".join(_lines(path)))
    except ValueError as error:
        raise DataError(
            f"{path} is not JSON ({error}). A .json file is one list of objects; one object a line is .jsonl."
        ) from error
    if not isinstance(values, list):
        raise DataError(f"{path} holds {_shown(values)}, expected a list of objects.")
    return _objects(values, "row", str(path))


def _read_csv(path: Path) -> Rows:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    reader = csv.reader(_lines(path), strict=True)
    try:
        header = next(reader, [])
        _check_header(header, path)
        for cells in reader:
            if len(cells) != len(header) and cells:
                raise DataError(
                    f"{path} line {reader.line_num} has {len(cells)} cells, the header has {len(header)} "
                    f"({', '.join(header)}). Put cells that contain commas in double quotes."
                )
            if cells:
                yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num} is not CSV: {error}.") from error


def _check_header(header: list[str], path: Path) -> None:
    odd = [name for name in header if not _COLUMN_NAME.fullmatch(name)]
    odd += [name for name in header if header.count(name) > 1]
    if odd or not header:
        shown = repr(odd[0][:60]) if odd else "nothing"
        raise DataError(
            f"{path} has no header: its first line has {shown}, which is not the name of one column. "
            "Write the column names there, such as: prompt,completion"
        )


def _read_parquet(path: Path) -> Rows:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {str(error).splitlines()[0][:200]}") from error
    return iter(rows)


_READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
}
