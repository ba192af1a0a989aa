"""Two completions to compare, what a person said of them, and the training pairs that makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from prefrl.data.fields import margin_of, strength_key
from prefrl.data.formats import content_hash
from prefrl.types import Completion, Pair, Prompt

Outcome = Literal["first", "second", "tie", "skip"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Two completions of a prompt to be compared.

    id           empty makes one of what is asked and the round: the same question of a round has the same id
    checkpoints  which policies wrote the first and the second completion
    judge        checkpoint of the reward model that was uncertain
    uncertainty  how uncertain it was; None where nobody asked it
    why          what the item is for, such as random or uncertainty
    overlap      people who should label it
    """

    prompt: Prompt
    first: Completion
    second: Completion
    id: str = ""
    round: int = 0
    checkpoints: tuple[str, str] = ("", "")
    judge: str = ""
    uncertainty: float | None = None
    why: str = ""
    overlap: int = 1

    def __post_init__(self) -> None:
        if not self.id:
            asked = [self.prompt.content, self.first.text, self.second.text, self.round]
            object.__setattr__(self, "id", content_hash([{"asked": asked}]))

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON has it."""
        prompt = self.prompt
        content = {"text": prompt.text} if prompt.messages is None else {"messages": [dict(m) for m in prompt.messages]}
        return {
            "id": self.id,
            "prompt": {"id": prompt.id, **content, "columns": dict(prompt.columns)},
            "first": completion_to_dict(self.first),
            "second": completion_to_dict(self.second),
            "round": self.round,
            "checkpoints": list(self.checkpoints),
            "judge": self.judge,
            "uncertainty": self.uncertainty,
            "why": self.why,
            "overlap": self.overlap,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Item:
        """The item of a `to_dict`."""
        prompt = dict(values["prompt"])
        if "messages" in prompt:
            prompt["messages"] = tuple(prompt["messages"])
        first, second = (completion_from_dict(values[side]) for side in ("first", "second"))
        one, other = values["checkpoints"]
        rest = {k: v for k, v in values.items() if k not in ("prompt", "first", "second", "checkpoints")}
        return cls(prompt=Prompt(**prompt), first=first, second=second, checkpoints=(one, other), **rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one person said of one item, as `first` and `second` are in the item, whatever side they were shown on.

    version   1 for the first label of this person on this item, then 2, ...
    strength  how much better, in words of the one who asks
    time      when, as ISO 8601 in UTC
    """

    id: str
    item: str
    annotator: str
    version: int
    outcome: Outcome
    strength: str = ""
    note: str = ""
    time: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The label as JSON has it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Judgement(NamedTuple):
    """A label and the item it is about."""

    item: Item
    label: Label


def to_pairs(judgements: Sequence[Judgement], margins: Mapping[str, float] | None = None) -> list[Pair]:
    """Judgements as training pairs, one each; skipped ones are left out.

    Args:
        judgements: items with their labels.
        margins: margin of each strength; without it margins are 0, and so is that of a label without a strength.

    Raises:
        DataError: a strength that has no margin.
    """
    known = {strength_key(strength): margin for strength, margin in (margins or {}).items()}
    pairs = []
    for item, label in judgements:
        if label.outcome == "skip":
            continue
        sides = (item.second, item.first) if label.outcome == "second" else (item.first, item.second)
        tied = label.outcome == "tie"
        graded = bool(known and label.strength)
        pairs.append(
            Pair(
                prompt=item.prompt,
                chosen=sides[0],
                rejected=sides[1],
                label=0.5 if tied else 1.0,
                margin=margin_of(label.strength, known, tied=tied) if graded else 0.0,
                tie=float(tied),
                annotator=label.annotator,
            )
        )
    return pairs


def completion_to_dict(completion: Completion) -> dict[str, Any]:
    """The completion as JSON has it."""
    return {name: getattr(completion, name) for name in ("text", "ids", "logps", "finished")}


def completion_from_dict(values: Mapping[str, Any]) -> Completion:
    """The completion of a `completion_to_dict`."""
    ids, logps = (None if values[name] is None else tuple(values[name]) for name in ("ids", "logps"))
    return Completion(text=values["text"], ids=ids, logps=logps, finished=values["finished"])
