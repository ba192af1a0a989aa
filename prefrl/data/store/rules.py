"""What may be said of an item: pure checks of a label against the settings of its project."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.data.comparisons import Outcome
from prefrl.data.project import ProjectSettings
from prefrl.data.store.errors import Invalid
from prefrl.data.store.texts import dumps
from prefrl.errors import did_you_mean

LONGEST = 200_000  # characters of a note, or of all the details of a label
SIDES = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A label as it is handed in: see `prefrl.data.comparisons.Label`."""

    outcome: Outcome
    strength: str
    note: str
    details: Mapping[str, Any]


def check(said: Said, settings: ProjectSettings, kind: str, steps: int) -> None:
    """Check what was said of an item of a kind, and of that many steps.

    Raises:
        Invalid: something that the project does not ask, or lacks what it requires.
    """
    expected = outcomes(settings, kind)
    _require(said.outcome in expected, f"the outcome {said.outcome!r}", f"one of {', '.join(expected)}")
    _check_strength(said, settings)
    _check_note(said, settings)
    for name, value in said.details.items():
        _require(
            name in _DETAILS, f"the detail {name!r}", f"one of {', '.join(_DETAILS)}.{did_you_mean(name, _DETAILS)}"
        )
        _DETAILS[name](said, settings, steps, value)
    if said.outcome == "skip" and settings.skip_reasons:
        _require(bool(said.details.get("reasons")), "a skip without a reason", "at least one of the project's reasons")
    if said.outcome == "steps":
        _require("ratings" in said.details, "no ratings of the steps", f"{steps} of them")
    _require(len(dumps(said.details)) <= LONGEST, "details that are too long", f"at most {LONGEST} characters")


def outcomes(settings: ProjectSettings, kind: str) -> tuple[Outcome, ...]:
    """What can be said of items of a kind."""
    if kind == "steps":
        return ("steps", "skip")
    if kind == "check":
        return ("right", "wrong", "unsure", "skip")
    tie: tuple[Outcome, ...] = ("tie",) if settings.has_tie else ()
    both_bad: tuple[Outcome, ...] = ("both_bad",) if settings.both_bad else ()
    return ("first", "second", *tie, *both_bad, "skip")


def _require(good: bool, got: str, expected: str) -> None:
    if not good:
        raise Invalid(f"Got {got}; expected {expected}")


def _check_strength(said: Said, settings: ProjectSettings) -> None:
    words = settings.strengths if said.outcome in SIDES else ("",)
    listed = ", ".join(map(repr, words))
    _require(said.strength in words, f"the strength {said.strength!r} of {said.outcome}", f"one of {listed}")


def _check_note(said: Said, settings: ProjectSettings) -> None:
    need = settings.rationale
    if said.outcome != "skip" and need == "required":
        _require(bool(said.note.strip()), "no rationale", "a few words on why")
    if need == "off":
        _require(not said.note, "a rationale", "none: this project does not ask for it")
    _require(len(said.note) <= LONGEST, f"a rationale of {len(said.note)} characters", f"at most {LONGEST}")


def _check_criteria(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    points = {criterion.name: criterion.points for criterion in settings.criteria}
    _require(isinstance(value, Mapping), "criteria that are no mapping", "{name: number}")
    for name, number in value.items():
        _require(name in points, f"the criterion {name!r}", f"one of {list(points)}")
        whole = isinstance(number, int) and not isinstance(number, bool)
        limit = points[name]
        _require(
            whole and -limit <= number <= limit, f"{number!r} for {name!r}", f"a whole number from {-limit} to {limit}"
        )


def _check_reasons(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    allowed = list(settings.skip_reasons) if said.outcome == "skip" else []
    _require(isinstance(value, Sequence) and not isinstance(value, str), "reasons that are no list", "a list of texts")
    for reason in value:
        _require(reason in allowed, f"the reason {reason!r} of {said.outcome}", f"one of {allowed}")


def _check_answer(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    _require(settings.better_answer, "a better answer", "none: this project does not ask for one")
    good = isinstance(value, Mapping) and set(value) <= {"text", "from"} and isinstance(value.get("text"), str)
    _require(good and bool(value["text"].strip()), "a better answer without a text", '{"text": ..., "from": ...}')
    _require(value.get("from", "") in ("", *SIDES), f"an answer from {value.get('from')!r}", "first, second or nothing")


def _check_ratings(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    _require(said.outcome == "steps" or not value, f"ratings of {said.outcome}", "them with the outcome steps only")
    if said.outcome != "steps":
        return
    good = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == steps
    _require(good, f"ratings {value!r}", f"{steps} of them, one of each step")
    _require(all(_is_rating(one) for one in value), f"ratings {value!r}", "1, 0, -1 or null each")
    end = list(value).index(-1) + 1 if settings.step_mode == "first_error" and -1 in value else steps
    unsure = said.details.get("unsure") or ()
    unrated = [step for step in range(end) if value[step] is None and step not in unsure]
    _require(not unrated, f"no rating of step {unrated[0] + 1 if unrated else 0}", "one, or that you are unsure of it")
    after = [step for step in range(end, steps) if value[step] is not None]
    _require(not after, "ratings after the first wrong step", "null there: this project stops at the first error")


def _is_rating(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value in (1, 0, -1))


def _check_alternatives(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    good = isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())
    _require(good, "alternatives that are no mapping", "{step: text}")
    for step in value:
        _require(str(step).isdecimal() and int(step) < steps, f"an alternative of step {step!r}", f"0 to {steps - 1}")


def _check_unsure(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    _require(isinstance(value, Sequence) and not isinstance(value, str), "unsure that is no list", "a list of steps")
    for step in value:
        good = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < steps
        _require(good, f"unsure of step {step!r}", f"0 to {steps - 1}")


def _check_active(said: Said, settings: ProjectSettings, steps: int, value: Any) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    _require(good, f"active_ms {value!r}", "milliseconds, 0 or more")


_DETAILS: dict[str, Callable[[Said, ProjectSettings, int, Any], None]] = {
    "criteria": _check_criteria,
    "reasons": _check_reasons,
    "answer": _check_answer,
    "ratings": _check_ratings,
    "alternatives": _check_alternatives,
    "unsure": _check_unsure,
    "active_ms": _check_active,
}
