"""Whether what comes from a file has the types that pages and exports rely on: else one bad row stops everybody."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from prefrl.data.comparisons import CheckItem, Clip, Item, Label, StepItem, Task
from prefrl.data.project import ProjectSettings
from prefrl.data.store.errors import Invalid
from prefrl.data.store.records import Flag
from prefrl.data.store.texts import storable

MOST, LONGEST, LONGEST_TEXT = 50, 200, 200_000  # criteria or reasons, characters of each, and of the guidelines
_YEAR_10000 = 253_402_300_800  # in epoch seconds; no calendar goes on
Is = Callable[[Any], bool]


def check_task(task: Task) -> None:
    """Check an item.

    Raises:
        Invalid: something in it is of another type.
    """
    _check(task, _TASK | _OF_KIND[type(task)], f"item {task.id!r:.60}")
    _check(task.prompt, _PROMPT, f"the prompt of item {task.id!r:.60}")
    if isinstance(task, Item):
        for completion in (task.first, task.second):
            _check(completion, _COMPLETION, f"an answer of item {task.id!r:.60}")
        for clip in task.clips or ():
            _check(clip, _CLIP, f"a clip of item {task.id!r:.60}")
    if isinstance(task, CheckItem):
        _check(task.completion, _COMPLETION, f"the answer of item {task.id!r:.60}")


def check_label(label: Label) -> None:
    """Check a label that was given elsewhere.

    Raises:
        Invalid: something in it is of another type.
    """
    _check(label, _LABEL, f"label {label.id!r:.60}")
    check_details(label.details, f"label {label.id!r:.60}")


def check_details(details: Mapping[str, Any], of: str) -> None:
    """Check those of the details that have a meaning; what else there is, is the caller's.

    Raises:
        Invalid: one is of another type.
    """
    for name in details.keys() & _DETAILS.keys():
        if not _DETAILS[name](details[name]):
            raise Invalid(f"Got {details[name]!r:.60} for {name} in the details of {of}; see Label for its form.")


def check_settings(settings: ProjectSettings) -> None:
    """Check the settings of a project.

    Raises:
        Invalid: something in them is of another type, or longer than a page can show and a label can answer.
    """
    _check(settings, _SETTINGS, "the settings")
    for words in (settings.name, *settings.skip_reasons, *settings.flag_reasons, *(c.name for c in settings.criteria)):
        if len(words) > LONGEST:
            raise Invalid(f"Got {words[:40]!r}... of {len(words)} characters; expected at most {LONGEST} characters.")
    if len(settings.guidelines) > LONGEST_TEXT:
        raise Invalid(f"Got guidelines of {len(settings.guidelines)}; expected at most {LONGEST_TEXT} characters.")
    lists = {"criteria": settings.criteria, "reasons": max(settings.skip_reasons, settings.flag_reasons, key=len)}
    for name, values in lists.items():
        if len(values) > MOST:
            raise Invalid(f"Got {len(values)} {name}; expected at most {MOST} {name}.")


def check_flag(flag: Flag) -> None:
    """Check a report.

    Raises:
        Invalid: something in it is of another type.
    """
    _check(flag, _FLAG, f"report {flag.id!r:.60}")


def _check(thing: Any, fields: Mapping[str, Is], of: str) -> None:
    for name, good in fields.items():
        if not good(value := getattr(thing, name)):
            raise Invalid(f"Got {value!r:.60} for {name} of {of}, which is of another type than that.")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _plain(value: Any) -> bool:
    return isinstance(value, str) and value == storable(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _or_none(good: Is) -> Is:
    return lambda value: value is None or good(value)


def _all(good: Is) -> Is:
    return lambda value: isinstance(value, list | tuple) and all(map(good, value))


def _named(good: Is) -> Is:
    return lambda value: isinstance(value, Mapping) and all(map(_text, value)) and all(map(good, value.values()))


def _message(value: Any) -> bool:
    named = isinstance(value, Mapping) and isinstance(value.get("role"), str)
    return named and (value["role"] != "user" or "content" in value)


def _rating(value: Any) -> bool:
    return value is None or (_whole(value) and value in (1, 0, -1))


def _answer(value: Any) -> bool:
    return _named(_text)(value) and "text" in value and value.get("from", "") in ("", "first", "second")


def _steps(value: Any) -> bool:
    return _named(_text)(value) and all(step.isdecimal() for step in value)


def _moment(value: Any) -> bool:
    return _number(value) and 0 <= value < _YEAR_10000


def _time(value: Any) -> bool:
    try:
        return value == "" or math.isfinite(datetime.fromisoformat(value).timestamp())
    except (TypeError, ValueError, OverflowError, OSError):
        return False


_TASK: dict[str, Is] = {"round": _whole, "overlap": _whole, "why": _text, "uncertainty": _or_none(_number)}
_OF_KIND: dict[type, dict[str, Is]] = {
    Item: {"checkpoints": _all(_text), "judge": _text, "clips": _or_none(_all(lambda clip: isinstance(clip, Clip)))},
    StepItem: {"steps": _all(_text), "checkpoint": _text, "answer": _or_none(_text), "guesses": _all(_number)},
    CheckItem: {"question": _text, "checkpoint": _text, "answer": _or_none(_text), "verdicts": _named(_number)},
}
_PROMPT: dict[str, Is] = {
    "id": _text,
    "text": _or_none(_text),
    "messages": _or_none(_all(_message)),
    "columns": lambda value: isinstance(value, Mapping),
}
_COMPLETION: dict[str, Is] = {
    "text": _text,
    "ids": _or_none(_all(_whole)),
    "logps": _or_none(_all(lambda value: isinstance(value, int | float))),
    "finished": _truth,
}
_CLIP: dict[str, Is] = {
    "frames": _all(_text),
    "states": _all(_all(_number)),
    "names": _all(_text),
    "seconds": lambda value: _number(value) and value > 0,
}
_SETTINGS: dict[str, Is] = {
    **dict.fromkeys(("name", "guidelines", "rationale", "step_mode"), _plain),
    **dict.fromkeys(("tie", "both_bad", "better_answer"), _truth),
    **dict.fromkeys(("scale", "overlap", "skip_after", "quota"), _whole),
    **dict.fromkeys(("lease_minutes", "edit_minutes", "gold_share"), _number),
    **dict.fromkeys(("skip_reasons", "flag_reasons"), _all(_plain)),
    "criteria": _all(lambda criterion: _plain(criterion.name) and _whole(criterion.points)),
}
_FLAG: dict[str, Is] = {
    **dict.fromkeys(("id", "item", "person", "reason", "note", "resolved_by"), _plain),
    "time": _moment,
    "resolved": _or_none(_moment),
}
_LABEL: dict[str, Is] = {
    **dict.fromkeys(("id", "item", "annotator", "outcome", "strength", "note"), _plain),
    "version": lambda value: _whole(value) and value >= 1,
    "time": _time,
    "details": lambda value: isinstance(value, Mapping),
}
_DETAILS: dict[str, Is] = {
    "criteria": _named(_whole),
    "reasons": _all(_text),
    "answer": _answer,
    "ratings": _all(_rating),
    "alternatives": _steps,
    "unsure": _all(_whole),
    "active_ms": lambda value: _number(value) and value >= 0,
    "exchanged": _truth,
    "adjudication": _truth,
}
