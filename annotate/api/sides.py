"""From the sides as they are shown, A and B, to first and second as they are in the item, and back.

Whether the sides of an assignment are exchanged never leaves the server.
"""

from __future__ import annotations

from typing import Any

from annotate.api.bodies import LabelBody
from prefrl.data.comparisons import Label, Outcome

_STORED: dict[str, Outcome] = {"a": "first", "b": "second"}
_SHOWN: dict[str, str] = {"first": "a", "second": "b"}
_OTHER: dict[str, str] = {"first": "second", "second": "first"}


def stored(body: LabelBody, exchanged: bool) -> tuple[Outcome, dict[str, Any]]:
    """The outcome and the details of a label, as the item has its sides; what was not said is left out.

    A criterion is negative where A is better, so it changes its sign with the sides.
    """
    outcome: Any = _turn(_STORED.get(body.outcome, body.outcome), exchanged)
    sign = -1 if exchanged else 1
    details: dict[str, Any] = {
        "criteria": {name: sign * points for name, points in body.criteria.items()},
        "reasons": body.reasons,
        "ratings": body.ratings,
        "alternatives": body.alternatives,
        "unsure": body.unsure,
        "active_ms": body.active_ms,
    }
    if body.answer is not None and body.answer.text:
        origin = _turn(_STORED.get(body.answer.origin, ""), exchanged)
        details["answer"] = {"text": body.answer.text, "from": origin}
    return outcome, {name: value for name, value in details.items() if value}


def shown(label: Label, exchanged: bool) -> dict[str, Any]:
    """A label as the page sent it."""
    details, sign = label.details, -1 if exchanged else 1
    answer = details.get("answer")
    return {
        "version": label.version,
        "outcome": shown_outcome(label, exchanged),
        "strength": label.strength,
        "rationale": label.note,
        "criteria": {name: sign * points for name, points in details.get("criteria", {}).items()},
        "reasons": details.get("reasons", []),
        "answer": answer and {"text": answer["text"], "from": _SHOWN.get(_turn(answer["from"], exchanged), "")},
        "ratings": details.get("ratings", []),
        "alternatives": details.get("alternatives", {}),
        "unsure": details.get("unsure", []),
        "active_ms": details.get("active_ms", 0),
    }


def shown_outcome(label: Label, exchanged: bool) -> str:
    """The outcome of a label as the page knows it."""
    outcome = _turn(label.outcome, exchanged)
    return _SHOWN.get(outcome, outcome)


def _turn(side: str, exchanged: bool) -> str:
    return _OTHER.get(side, side) if exchanged else side
