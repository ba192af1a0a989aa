"""How values are written into the database."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any


def dumps(value: Any) -> str:
    """One line of ASCII, which holds half a surrogate pair too; what JSON has no word for becomes its text."""
    return json.dumps(value, default=str)


def storable(text: str) -> str:
    """A text that databases can keep: half a surrogate pair and the character 0 become their escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def iso(seconds: float) -> str:
    """Epoch seconds as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def epoch(time: str) -> float:
    """Epoch seconds of an `iso`; 0 where the text is no time."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def is_exchanged(secret: str, item: str, person: str) -> bool:
    """Whether this person sees the second completion as A: the same way every time, and half of the time."""
    return hashlib.sha256(f"{secret}|{item}|{person}".encode()).digest()[0] % 2 == 1
