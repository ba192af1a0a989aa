"""How a labelling project asks: what people may say, how sure they must be, and who may say how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from prefrl.errors import ConfigError, did_you_mean

# Strengths of a preference from the weakest to the strongest, by the number of points of the scale that has them on
# both of its sides; scales of an odd number of points have a tie in their middle.
SCALES: dict[int, tuple[str, ...]] = {
    2: ("",),
    3: ("",),
    4: ("slightly", "clearly"),
    7: ("slightly", "clearly", "much"),
    8: ("negligibly", "slightly", "clearly", "much"),
}
Need = Literal["off", "optional", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """Something that is rated apart from the choice, from -points to points: negative says that A is better."""

    name: str
    points: int = 2

    def __post_init__(self) -> None:
        if not self.name.strip() or not 1 <= self.points <= 5:
            raise ConfigError(f"criterion {self.name!r} of {self.points} points; expected a name, and 1 to 5 points")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """How a project asks.

    Attributes:
        name: what people see.
        guidelines: what they are told, in Markdown.
        scale: points of the preference scale: 2, 3, 4, 7 or 8; see `SCALES`. 3 and 7 have a tie in the middle.
        tie: whether neither may be better, on a scale without a middle; one with a middle always has it.
        both_bad: whether both may be bad, which is not a tie.
        criteria: what is rated besides.
        rationale: whether people may, or must, say why.
        skip_reasons: what a skip is asked for; empty asks for none.
        flag_reasons: what an item can be reported for.
        better_answer: whether people may write a better answer.
        step_mode: all rates every step; first_error ends at the first wrong one.
        overlap: people who label an item, where the item does not say.
        lease_minutes: how long an item is kept for who opened it.
        edit_minutes: how long a label may be changed; 0 is without an end.
        skip_after: skips after which nobody is asked any more; 0 asks the next person always.
        gold_share: share of the items that a person gets whose answer is known.
        quota: most labels of a person; 0 is without an end.
    """

    name: str = "Preferences"
    guidelines: str = ""
    scale: int = 2
    tie: bool = True
    both_bad: bool = True
    criteria: tuple[Criterion, ...] = ()
    rationale: Need = "optional"
    skip_reasons: tuple[str, ...] = ("I cannot judge this", "The question makes no sense", "Something is missing")
    flag_reasons: tuple[str, ...] = ("Offensive", "Personal data", "Broken text", "A model names itself")
    better_answer: bool = True
    step_mode: Literal["all", "first_error"] = "all"
    overlap: int = 1
    lease_minutes: float = 30.0
    edit_minutes: float = 0.0
    skip_after: int = 2
    gold_share: float = 0.1
    quota: int = 0

    def __post_init__(self) -> None:
        checks = {
            "scale": (self.scale in SCALES, f"one of {', '.join(map(str, SCALES))}"),
            "rationale": (self.rationale in ("off", "optional", "required"), "off, optional or required"),
            "step_mode": (self.step_mode in ("all", "first_error"), "all or first_error"),
            "overlap": (self.overlap >= 1, "1 or more"),
            "lease_minutes": (self.lease_minutes > 0, "more than 0"),
            "edit_minutes": (self.edit_minutes >= 0, "0 or more"),
            "skip_after": (self.skip_after >= 0, "0 or more"),
            "gold_share": (0.0 <= self.gold_share <= 0.5, "a share in [0, 0.5]"),
            "quota": (self.quota >= 0, "0 or more"),
        }
        for name, (good, expected) in checks.items():
            if not good:
                raise ConfigError(f"project setting {name} is {getattr(self, name)!r}; expected {expected}")
        if len({criterion.name for criterion in self.criteria}) < len(self.criteria):
            raise ConfigError("two criteria of the project have the same name; give each its own")

    @property
    def strengths(self) -> tuple[str, ...]:
        """Words of the scale from the weakest to the strongest; one empty word where there is only one strength."""
        return SCALES[self.scale]

    @property
    def has_tie(self) -> bool:
        """Whether a tie can be said."""
        return self.tie or self.scale % 2 == 1

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ProjectSettings:
        """The settings of a `to_dict`; those that are not named keep their defaults.

        Raises:
            ConfigError: an unknown name, or a value that cannot be.
        """
        names = [f.name for f in fields(cls)]
        for name in values:
            if name not in names:
                raise ConfigError(f"unknown project setting {name!r}.{did_you_mean(name, names)}")
        given = dict(values)
        given["criteria"] = tuple(Criterion(**criterion) for criterion in given.get("criteria", ()))
        lists = ("skip_reasons", "flag_reasons")
        given |= {name: tuple(given[name]) for name in lists if name in given}
        return cls(**given)
