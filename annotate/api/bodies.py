"""What the label page sends. Whatever is not named here is refused, and so are numbers that are none."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from prefrl.data.store.texts import storable

# Half a pair of UTF-16, which a field that cuts off leaves behind, becomes its escape, as in the store.
Kept = BeforeValidator(lambda value: storable(value) if isinstance(value, str) else value)
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Text = Annotated[str, Kept, Field(max_length=20_000)]
LongText = Annotated[str, Kept, Field(max_length=200_000)]
Word = Annotated[str, Field(max_length=200)]
Side = Literal["a", "b", ""]
Shown = Literal["a", "b", "tie", "both_bad", "steps", "right", "wrong", "unsure", "skip"]
DAY_MS = 24 * 60 * 60 * 1000


class Body(BaseModel):
    """A JSON object with these fields only."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SignIn(Body):
    """Who wants to sign in, and the page to go to."""

    name: Word = ""
    password: Annotated[str, Field(max_length=1000)] = ""
    next: Word = ""


class NextBody(Body):
    """How many items are wanted, and which assignments the page has already."""

    count: Annotated[int, Field(ge=1, le=5)] = 2
    held: Annotated[list[Id], Field(max_length=20)] = []


class Answer(Body):
    """A better answer, and the side that it was made of."""

    text: LongText = ""
    origin: Annotated[Side, Field(alias="from")] = ""


class LabelBody(Body):
    """A label, as the sides are shown."""

    id: Id
    assignment: Id
    outcome: Shown
    strength: Word = ""
    rationale: Text = ""
    criteria: Annotated[dict[Word, Annotated[int, Field(ge=-100, le=100)]], Field(max_length=50)] = {}
    reasons: Annotated[list[Word], Field(max_length=50)] = []
    answer: Answer | None = None
    ratings: Annotated[list[Literal[1, 0, -1] | None], Field(max_length=1000)] = []
    alternatives: Annotated[dict[Annotated[str, Field(pattern=r"^\d{1,4}$")], Text], Field(max_length=1000)] = {}
    unsure: Annotated[list[Annotated[int, Field(ge=0, lt=1000)]], Field(max_length=1000)] = []
    active_ms: Annotated[int, Field(ge=0, le=DAY_MS)] = 0
    base_version: Annotated[int, Field(ge=0, lt=1_000_000)] = 0


class FlagBody(Body):
    """A report of an item."""

    id: Id
    assignment: Id
    reason: Word
    note: Text = ""


class AssignmentBody(Body):
    """An assignment to give back, or to keep for longer."""

    assignment: Id
