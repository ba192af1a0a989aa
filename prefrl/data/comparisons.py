"""What people are asked (to compare two completions, to rate steps, to check one answer), and what they say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from prefrl.data.fields import margin_of, strength_key
from prefrl.data.formats import content_hash
from prefrl.types import Completion, Pair, Prompt

Outcome = Literal["first", "second", "tie", "both_bad", "steps", "right", "wrong", "unsure", "skip"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Kind = Literal["pair", "steps", "check"]
# What the first completion of a pair has won; of two bad ones, half as of a tie.
WINS: Mapping[Outcome, float] = {"first": 1.0, "second": 0.0, "tie": 0.5, "both_bad": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A piece of an episode to look at: pictures, or the states themselves as numbers.

    frames  hashes of pictures in the store's media, in order; empty where only states are known
    states  one vector a step, which the page draws as curves
    names   of the entries of a state
    seconds how long a step is shown
    """

    frames: tuple[str, ...] = ()
    states: tuple[tuple[float, ...], ...] = ()
    names: tuple[str, ...] = ()
    seconds: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Two completions of a prompt to be compared.

    id           empty makes one of what is asked and the round: the same question of a round has the same id
    checkpoints  which policies wrote the first and the second completion
    judge        checkpoint of the reward model that was uncertain
    uncertainty  how uncertain it was; None where nobody asked it
    why          what the item is for, such as random or uncertainty
    overlap      people who should label it
    clips        for control: what the two completions look like; their texts then only name them
    """

    kind: ClassVar[Kind] = "pair"

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
    clips: tuple[Clip, Clip] | None = None

    def __post_init__(self) -> None:
        if not self.id:
            asked = [self.prompt.content, self.first.text, self.second.text, self.round]
            object.__setattr__(self, "id", content_hash([{"asked": asked}]))

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON has it."""
        clips = {} if self.clips is None else {"clips": [asdict(clip) for clip in self.clips]}
        return {
            "id": self.id,
            "prompt": prompt_to_dict(self.prompt),
            "first": completion_to_dict(self.first),
            "second": completion_to_dict(self.second),
            "round": self.round,
            "checkpoints": list(self.checkpoints),
            "judge": self.judge,
            "uncertainty": self.uncertainty,
            "why": self.why,
            "overlap": self.overlap,
            **clips,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Item:
        """The item of a `to_dict`."""
        first, second = (completion_from_dict(values[side]) for side in ("first", "second"))
        one, other = values["checkpoints"]
        shown = values.get("clips")
        rest = {k: v for k, v in values.items() if k not in ("prompt", "first", "second", "checkpoints", "clips")}
        return cls(
            prompt=prompt_from_dict(values["prompt"]),
            first=first,
            second=second,
            checkpoints=(one, other),
            clips=None if shown is None else (_clip(shown[0]), _clip(shown[1])),
            **rest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepItem:
    """A solution in steps, each of which is to be rated.

    id          empty makes one of what is asked and the round
    checkpoint  which policy wrote the steps
    answer      the known answer, which people see; None where there is none
    guesses     what a model thinks of the steps, in [0, 1]; people do not see it
    """

    kind: ClassVar[Kind] = "steps"

    prompt: Prompt
    steps: tuple[str, ...]
    id: str = ""
    round: int = 0
    checkpoint: str = ""
    answer: str | None = None
    guesses: tuple[float, ...] = ()
    uncertainty: float | None = None
    why: str = ""
    overlap: int = 1

    def __post_init__(self) -> None:
        if not self.id:
            asked = [self.prompt.content, list(self.steps), self.round]
            object.__setattr__(self, "id", content_hash([{"steps": asked}]))

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON has it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        lists = {"steps": list(self.steps), "guesses": list(self.guesses)}
        return {"kind": self.kind, **values, **lists, "prompt": prompt_to_dict(self.prompt)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StepItem:
        """The item of a `to_dict`."""
        rest = {k: v for k, v in values.items() if k not in ("kind", "prompt", "steps", "guesses")}
        steps, guesses = (tuple(values[name]) for name in ("steps", "guesses"))
        return cls(prompt=prompt_from_dict(values["prompt"]), steps=steps, guesses=guesses, **rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckItem:
    """One completion about which a question is asked: is it right? For verifiers that disagree, and for rollouts.

    id          empty makes one of what is asked and the round
    question    what is asked; empty asks whether the answer is right
    answer      the known answer, which people see; None where there is none
    verdicts    what programs said, by name; people do not see it
    checkpoint  which policy wrote the completion
    """

    kind: ClassVar[Kind] = "check"

    prompt: Prompt
    completion: Completion
    id: str = ""
    question: str = ""
    answer: str | None = None
    verdicts: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    checkpoint: str = ""
    uncertainty: float | None = None
    why: str = ""
    overlap: int = 1

    def __post_init__(self) -> None:
        if not self.id:
            asked = [self.prompt.content, self.completion.text, self.question, self.round]
            object.__setattr__(self, "id", content_hash([{"check": asked}]))

    def to_dict(self) -> dict[str, Any]:
        """The item as JSON has it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"prompt": prompt_to_dict(self.prompt), "completion": completion_to_dict(self.completion)}
        return {"kind": self.kind, **values, "verdicts": dict(self.verdicts)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CheckItem:
        """The item of a `to_dict`."""
        rest = {k: v for k, v in values.items() if k not in ("kind", "prompt", "completion")}
        completion = completion_from_dict(values["completion"])
        return cls(prompt=prompt_from_dict(values["prompt"]), completion=completion, **rest)


Task: TypeAlias = Item | StepItem | CheckItem
TASKS: dict[str, type[Item] | type[StepItem] | type[CheckItem]] = {
    kind.kind: kind for kind in (Item, StepItem, CheckItem)
}


def task_from_dict(values: Mapping[str, Any]) -> Task:
    """The item of a `to_dict` of any kind; one without a kind is a pair.

    Raises:
        KeyError: an unknown kind, or a field that is missing.
    """
    return TASKS[values.get("kind", Item.kind)].from_dict(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one person said of one item, as `first` and `second` are in the item, whatever side they were shown on.

    version   1 for the first label of this person on this item, then 2, ...
    strength  how much better, in words of the one who asks
    note      why, in the words of the one who labelled
    time      when, as ISO 8601 in UTC
    details   whatever else was said, as JSON has it: `criteria` {name: number}, `reasons` [text], `answer` {text,
              from} (a better one, and the side it is made of), `ratings` [1 | 0 | -1 | null] of the steps,
              `alternatives` {step: text}, `unsure` [step], `active_ms`, `exchanged` (whether the second was A),
              `adjudication` (whether it settles what others disagree about)
    """

    id: str
    item: str
    annotator: str
    version: int
    outcome: Outcome
    strength: str = ""
    note: str = ""
    time: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The label as JSON has it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


class Judgement(NamedTuple):
    """A label and the item it is about."""

    item: Item
    label: Label


def to_pairs(judgements: Sequence[Judgement], margins: Mapping[str, float] | None = None) -> list[Pair]:
    """Judgements as training pairs, one each; skipped ones are left out, and two bad answers are a tie.

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
        tied = label.outcome in ("tie", "both_bad")
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


def prompt_to_dict(prompt: Prompt) -> dict[str, Any]:
    """The prompt as JSON has it."""
    content = {"text": prompt.text} if prompt.messages is None else {"messages": [dict(m) for m in prompt.messages]}
    return {"id": prompt.id, **content, "columns": dict(prompt.columns)}


def prompt_from_dict(values: Mapping[str, Any]) -> Prompt:
    """The prompt of a `prompt_to_dict`."""
    given = dict(values)
    if "messages" in given:
        given["messages"] = tuple(given["messages"])
    return Prompt(**given)


def completion_to_dict(completion: Completion) -> dict[str, Any]:
    """The completion as JSON has it."""
    return {name: getattr(completion, name) for name in ("text", "ids", "logps", "finished")}


def completion_from_dict(values: Mapping[str, Any]) -> Completion:
    """The completion of a `completion_to_dict`."""
    ids, logps = (None if values[name] is None else tuple(values[name]) for name in ("ids", "logps"))
    return Completion(text=values["text"], ids=ids, logps=logps, finished=values["finished"])


def _clip(values: Mapping[str, Any]) -> Clip:
    states = tuple(tuple(state) for state in values["states"])
    return Clip(frames=tuple(values["frames"]), states=states, names=tuple(values["names"]), seconds=values["seconds"])
