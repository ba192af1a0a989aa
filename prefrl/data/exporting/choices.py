"""What is exported, and how people's words become rows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from prefrl.data.comparisons import Label, Task
from prefrl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from prefrl.data.preferences import PreferenceStore

Format: TypeAlias = Literal["preference", "unpaired", "stepwise", "prm800k", "sft", "votes"]
FORMATS: tuple[Format, ...] = get_args(Format)
ANONYMOUS = "id:"  # starts the name of somebody who came by an import and is known by a hash only


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How labels become rows.

    Attributes:
        format: preference, unpaired, stepwise and sft as TRL has them; prm800k as that dataset has it; votes are all
            versions of all labels, one a row.
        votes: majority: one row an item, for what most say. soft: one row an item with the share of votes as its label.
            each: one row a label.
        ties: drop leaves out what most call a tie; soft gives it the label 0.5.
        both_bad: the same where most say that both are bad.
        edits: whether a better answer that was made of one of the two is a pair with it.
        gold: whether items are exported whose answer is known.
        neutral: whether a step that is neither good nor bad counts as right, for `stepwise`.
        margins: margin of each strength; without it there is no column margin.
        reliability: probability that what a person says is right, by name; those not named count alike.
        names: whether people go by their names and not by hashes.
        held_out: share of the prompts that are set aside as a split `test`.
        seed: another seed, another split.
    """

    format: Format = "preference"
    votes: Literal["majority", "soft", "each"] = "majority"
    ties: Literal["drop", "soft"] = "drop"
    both_bad: Literal["drop", "soft"] = "drop"
    edits: bool = True
    gold: bool = False
    neutral: bool = True
    margins: Mapping[str, float] = field(default_factory=dict)
    reliability: Mapping[str, float] = field(default_factory=dict)
    names: bool = False
    held_out: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "format": FORMATS,
            "votes": ("majority", "soft", "each"),
            "ties": ("drop", "soft"),
            "both_bad": ("drop", "soft"),
        }
        for name, values in allowed.items():
            if (got := getattr(self, name)) not in values:
                raise ConfigError(
                    f"export.{name} is {got!r}; expected {', '.join(values)}.{did_you_mean(str(got), values)}"
                )
        for name, chance in self.reliability.items():
            if not 0.0 <= chance <= 1.0:
                raise ConfigError(f"The reliability of {name!r} is {chance}; expected a probability in [0, 1].")

    @property
    def soft(self) -> bool:
        """Whether a row can have another label than 1."""
        return "soft" in (self.votes, self.ties, self.both_bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """What a store holds, as exports read it.

    tasks    all items in the order they were added
    labels   all versions of all labels in the order they came
    gold     ids of items whose answer is known
    secret   of the project: it enters the hashes of names, so that nobody who knows the names can undo them
    """

    tasks: Sequence[Task]
    labels: Sequence[Label]
    gold: Collection[str] = ()
    secret: str = ""

    @classmethod
    def of(cls, store: PreferenceStore) -> Labelled:
        """All that a store holds now."""
        labels = store.labels(all_versions=True)
        return cls(tasks=store.tasks(), labels=labels, gold=set(store.gold()), secret=store.secret)

    def live(self) -> dict[str, list[Label]]:
        """The labels that count, by item: the last version of each person, in the order these came.

        Where somebody settled what others disagreed about, that label is the only one.
        """
        last: dict[tuple[str, str], Label] = {}
        for label in self.labels:
            key = (label.item, label.annotator)
            if key not in last or last[key].version < label.version:
                last.pop(key, None)
                last[key] = label
        found: dict[str, list[Label]] = {}
        for label in last.values():
            found.setdefault(label.item, []).append(label)
        settled = {
            item: [label for label in of_item if label.details.get("adjudication")] for item, of_item in found.items()
        }
        return {item: settled[item] or of_item for item, of_item in found.items()}

    def person(self, name: str, choices: Choices) -> str:
        """How a person is called in an export."""
        if choices.names:
            return name
        if name.startswith(ANONYMOUS):
            return name.removeprefix(ANONYMOUS)
        return hashlib.sha256(f"{self.secret}|{name}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
