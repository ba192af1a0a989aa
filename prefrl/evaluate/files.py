"""Writing that survives a full disk: whole files move into place, lines are appended whole."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from prefrl.errors import RunError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing to `path` into a `RunError` that says what is left."""
    try:
        yield
    except OSError as error:
        cure = "free some space" if error.errno in _FULL else "make the folder writable"
        raise RunError(
            f"Cannot write {path}: {error.strerror or error} ({_free_space(path)}). "
            f"Everything written so far is kept; {cure} or choose another --output."
        ) from error


def write_atomic(path: Path, text: str) -> None:
    """Replace a file in one move: a reader sees the old text or the new one, never a part.

    Raises:
        RunError: it could not be written; the old file stands.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            temporary.write_bytes(_encode(text))
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def append_lines(path: Path, objects: Sequence[Mapping[str, Any]]) -> None:
    """Append JSON lines, all of them or none.

    Raises:
        RunError: they could not be written; the file ends with its last full line.
    """
    lines = [json.dumps(item, ensure_ascii=False, allow_nan=False) + "\n" for item in objects]
    data = memoryview(_encode("".join(lines)))
    with writing(path), open(path, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[file.write(data) :]
        except BaseException:
            with suppress(OSError):
                file.truncate(size)
            raise


def to_plain(value: Any, *, finite: bool = True) -> Any:
    """The value as JSON and YAML have it: strings, numbers, lists and dicts.

    `finite` turns NaN and infinity, which JSON lacks, into None.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) or not finite else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, finite=finite) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, finite=finite) for item in value]
    if hasattr(value, "tolist"):  # tensors and arrays, without importing either
        return to_plain(value.tolist(), finite=finite)
    return str(value)


def _encode(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which a sampled text may hold, becomes its escape."""
    return text.encode("utf-8", "backslashreplace")


def _free_space(path: Path) -> str:
    for place in (path, *path.absolute().parents):
        with suppress(OSError):
            return f"{shutil.disk_usage(place).free:,} bytes free"
    return "free space unknown"
