"""JSON objects in text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from prefrl.rewards.verifiers.common import Verifier, gold_of
from prefrl.rewards.verifiers.verdict import Status, Verdict, failure
from prefrl.types import Rollout

_FENCE = "```"
_OPENED = re.compile(r"```(?:json)?[ \t]*+\n", re.IGNORECASE)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def find_object(text: str, *, strict: bool = True) -> dict[str, Any] | None:
    """The JSON object of a text, or None.

    Strict: the text is the object, bare or in one fenced block, and nothing else. Otherwise the last
    object of the text, fenced blocks first.
    """
    whole = text.strip()
    opened = _OPENED.match(whole)
    fenced = opened is not None and whole.endswith(_FENCE, opened.end())
    parsed = _parse(whole[opened.end() : -len(_FENCE)] if opened and fenced else whole)
    if strict or parsed is not None:
        return parsed
    blocks = [found for block in _blocks(text) if (found := _parse(block)) is not None]
    objects = blocks or list(_embedded(text))
    return objects[-1] if objects else None


def _blocks(text: str) -> Iterator[str]:
    """What stands in the fenced blocks of a text."""
    at = 0
    while (opened := _OPENED.search(text, at)) and (end := text.find(_FENCE, opened.end())) >= 0:
        yield text[opened.end() : end]
        at = end + len(_FENCE)


def _parse(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _embedded(text: str) -> Iterator[dict[str, Any]]:
    """Top-level objects between other text."""
    start = text.find("{")
    while start >= 0:
        try:
            found, end = _DECODER.raw_decode(text, start)
            yield found
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


def json_object(required: Sequence[str] = (), column: str | None = None, *, strict: bool = True) -> Verifier:
    """1 when the completion is a JSON object with all required keys; with a gold column, the matching share.

    Without `column`: 1 for a valid object with every required key, else 0. With it: the fraction of the
    gold object's fields that the completion has with the same value; 0 when invalid or a required key is
    missing. Values match by JSON type and value: 1 equals 1.0, but not true and not "1". Further keys are
    ignored.

    Args:
        required: keys that must be present.
        column: dataset column with the gold object, as a dict or as JSON text.
        strict: nothing but the object (or one fenced block of it) may be in the completion.

    Parts: `parsed`, `required` (share of required keys present), `fields` (share matching), `correct`.
    """
    keys = (required,) if isinstance(required, str) else tuple(required)

    def check(rollout: Rollout) -> Verdict:
        gold = None if column is None else gold_of(rollout, column, "json")
        fields = _parse(gold) if isinstance(gold, str) else gold
        if column is not None and not (isinstance(fields, Mapping) and fields):
            return failure(f"the column {column!r} is {gold!r}; expected an object with at least one field")
        return _grade(find_object(rollout.text, strict=strict), keys, fields)

    return Verifier("json", check)


def _grade(found: dict[str, Any] | None, keys: Sequence[str], gold: Mapping[str, Any] | None) -> Verdict:
    parsed, found = float(found is not None), found or {}
    present = sum(key in found for key in keys) / len(keys) if keys else parsed
    parts = {"parsed": parsed, "required": present}
    value = parsed if present == 1.0 else 0.0
    if gold is not None:
        parts["fields"] = sum(key in found and _same(found[key], gold[key]) for key in gold) / len(gold)
        value *= parts["fields"]
    status = Status.OK if parsed else Status.INVALID
    return Verdict(status=status, score=value, parts={**parts, "correct": float(value == 1.0)})


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON values; Python's own would take True for 1."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Real) and isinstance(b, Real):
        return isinstance(a, bool) == isinstance(b, bool) and a == b
    return bool(a == b)
