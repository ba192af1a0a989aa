"""Which column means what: guessed from the names, shown to people, changed by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from prefrl.errors import DataError, did_you_mean

Shape: TypeAlias = Literal["pair", "completions", "steps", "check"]
SHAPES: tuple[Shape, ...] = get_args(Shape)

# What a row must have, by its shape. A pair whose answers are whole conversations implies its prompt.
NEEDED: dict[Shape, tuple[str, ...]] = {
    "pair": ("first", "second"),
    "completions": ("prompt", "completions"),
    "steps": ("prompt", "steps"),
    "check": ("prompt", "completion"),
}
MAY_HAVE: dict[Shape, tuple[str, ...]] = {
    "pair": ("prompt", "winner", "strength", "first_policy", "second_policy", "round", "source", "item_id"),
    "completions": ("policies", "round", "source"),
    "steps": ("answer", "policy", "round", "source", "item_id"),
    "check": ("answer", "question", "policy", "verdicts", "stop", "round", "source", "item_id"),
}
# Names of columns by what they mean, as `_plain` spells them; the first one that is there is taken.
_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "instruction", "query", "input", "problem", "context", "conversation", "messages"),
    "first": (
        *("chosen", "first", "responsea", "answera", "completiona", "outputa", "a", "response0", "answer0"),
        *("completion0", "output0", "response1", "answer1", "completion1", "output1", "preferred", "winnerresponse"),
    ),
    "second": (
        *("rejected", "second", "responseb", "answerb", "completionb", "outputb", "b", "response2", "answer2"),
        *("completion2", "output2", "response1", "answer1", "completion1", "output1", "dispreferred", "loserresponse"),
    ),
    "completions": ("completions", "responses", "answers", "outputs", "candidates"),
    "steps": ("steps", "completions", "reasoningsteps", "solutionsteps"),
    "completion": ("completion", "response", "output", "solution", "generation"),
    "answer": ("answer", "groundtruth", "groundtruthanswer", "reference", "referenceanswer", "target"),
    "question": ("check", "checkquestion", "toask"),
    "verdicts": ("verdicts", "parts"),
    "stop": ("stop", "stopreason", "finishreason"),
    "winner": ("winner", "preference", "choice", "better"),
    "strength": ("strength",),
    "first_policy": ("modela", "firstmodel", "chosenmodel", "firstpolicy", "policya", "model1"),
    "second_policy": ("modelb", "secondmodel", "rejectedmodel", "secondpolicy", "policyb", "model2"),
    "policy": ("model", "policy", "checkpoint", "generator"),
    "policies": ("models", "policies", "checkpoints"),
    "round": ("round",),
    "source": ("source", "why"),
    "item_id": ("itemid",),
}
_ARCHIVE = {"settings", "media", "item", "label", "flag", "priority", "state", "gold"}
CHOSEN = ("chosen", "preferred", "winnerresponse")  # names of a first answer that say that it is the better one


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the columns of a table mean.

    shape   pair, completions (all pairs of them), steps or check
    roles   column by what it means; see `NEEDED` and `MAY_HAVE`
    chosen  whether the first answer is the better one, which its column's name says
    """

    shape: Shape
    roles: Mapping[str, str]
    chosen: bool = False

    def check(self, columns: Sequence[str]) -> None:
        """Make sure that the columns are there, and all that are needed.

        Raises:
            DataError: one is missing, means nothing, or means two things.
        """
        if self.shape not in SHAPES:
            raise DataError(f"Rows are of the shape {self.shape!r}; expected {', '.join(SHAPES)}.")
        allowed = NEEDED[self.shape] + MAY_HAVE[self.shape]
        for role, column in self.roles.items():
            if role not in allowed:
                raise DataError(
                    f"A column of {self.shape} cannot mean {role!r}; expected {', '.join(allowed)}."
                    f"{did_you_mean(role, allowed)}"
                )
            if column not in columns:
                raise DataError(
                    f"There is no column {column!r}; there are {', '.join(columns)}.{did_you_mean(column, columns)}"
                )
        if missing := [role for role in NEEDED[self.shape] if role not in self.roles]:
            raise DataError(
                f"No column is known to be {' and '.join(missing)} of {self.shape}; the columns are "
                f"{', '.join(columns)}. Say which one it is."
            )
        if len(set(self.roles.values())) < len(self.roles):
            raise DataError("One column is said to mean two things; give each its own.")

    def unused(self, columns: Sequence[str]) -> list[str]:
        """Columns that mean nothing here; they are kept beside the prompt."""
        return [name for name in columns if name not in self.roles.values()]


def guess(columns: Sequence[str]) -> Layout:
    """What columns of these names mean.

    Raises:
        DataError: nothing that could be labelled.
    """
    for shape in ("pair", "steps", "completions", "check"):
        roles = _roles(shape, columns)
        if shape == "steps" and roles.get("steps") != "steps" and "labels" not in columns:
            continue  # completions without labels of steps are answers of their own
        if all(role in roles for role in NEEDED[shape]):
            return Layout(shape=shape, roles=roles, chosen=_plain(roles.get("first", "")) in CHOSEN)
    raise DataError(
        f"Nothing to label in the columns {', '.join(columns)}. Expected a prompt and two answers (such as prompt, "
        "response_a, response_b; or chosen, rejected), several completions, steps, or one completion. Rename the "
        "columns, or say what they mean."
    )


def is_archive(columns: Sequence[str]) -> bool:
    """Whether columns are those of the export of a whole store, which `PreferenceStore.import_` reads."""
    return "item" in columns and set(columns) <= _ARCHIVE


def _roles(shape: Shape, columns: Sequence[str]) -> dict[str, str]:
    free = {_plain(column): column for column in reversed(columns)}
    roles = {}
    for role in NEEDED[shape] + MAY_HAVE[shape]:
        if found := next((name for name in _NAMES[role] if name in free), None):
            roles[role] = free.pop(found)
    return roles


def _plain(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())
