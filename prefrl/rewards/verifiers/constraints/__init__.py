"""Verifiable instructions: does the text do what it was asked to do, constraint by constraint?"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from prefrl.errors import RewardError, did_you_mean
from prefrl.rewards.verifiers.common import Verifier, gold_of
from prefrl.rewards.verifiers.constraints.checks import CHECKS, RELATIONS
from prefrl.rewards.verifiers.constraints.languages import is_language
from prefrl.rewards.verifiers.partial import Credit
from prefrl.rewards.verifiers.verdict import Status, Verdict
from prefrl.types import Rollout

__all__ = ["CHECKS", "constraints", "follows"]

VERSION = "2"
_ARGUMENTS = {name: dict(list(inspect.signature(check).parameters.items())[1:]) for name, check in CHECKS.items()}


def constraints(
    column: str = "instruction_id_list",
    arguments: str = "kwargs",
    *,
    partial: str = "fraction",
    alpha: float = 0.5,
    loose: bool = False,
) -> Verifier:
    """How many of a prompt's constraints the completion follows, in the format of IFEval.

    Args:
        column: dataset column with the list of constraint names, such as `punctuation:no_comma`.
        arguments: dataset column with a mapping of arguments for each of them; entries that are None do not count.
        partial, alpha: what following some of them is worth; see `Credit`.
        loose: IFEval's loose rule: without the first line, the last line or the stars it may be followed too.

    Parts: `fraction`, `strict` (1 where all are followed). The evidence lists what failed, by position.

    A run looks at the constraints of all its prompts before anything is learnt.

    Raises:
        ConfigError: an unknown `partial`.
        RewardError: an unknown constraint, or arguments that it does not take.
    """
    credit = Credit(partial, alpha)

    def look(columns: Mapping[str, Any]) -> None:
        if column in columns:
            _asked(columns[column], columns.get(arguments), "a prompt")

    def check(rollout: Rollout) -> Verdict:
        names, values = gold_of(rollout, column, "constraints"), rollout.prompt.columns.get(arguments)
        wanted = _asked(names, values, f"prompt {rollout.prompt.id!r}")
        said = [follows(rollout.text, name, values, loose=loose) for name, values in wanted]
        failed = [f"{at}: {name}" for at, ((name, _), ok) in enumerate(zip(wanted, said, strict=True)) if not ok]
        value, parts = credit.of(said)
        return Verdict(status=Status.OK, score=value, parts=parts, evidence="; ".join(failed) or "all followed")

    return Verifier("constraints", check, version=f"{VERSION}{'-loose' if loose else ''}", gold=look)


def follows(text: str, name: str, arguments: Mapping[str, Any] | None = None, *, loose: bool = False) -> bool:
    """Whether a text follows one constraint.

    Raises:
        RewardError: an unknown constraint, or arguments that it does not take.
    """
    ((name, values),) = _asked([name], [arguments or {}], "the call")
    texts = _variants(text) if loose else [text]
    return any(CHECKS[name](variant, **values) for variant in texts if variant.strip())


def _asked(names: Any, values: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise RewardError(f"{where}: the constraints are {names!r}; expected a list with at least one name")
    values = values or [{}] * len(names)
    listed = isinstance(values, Sequence) and all(one is None or isinstance(one, Mapping) for one in values)
    if not listed or len(values) != len(names):
        raise RewardError(
            f"{where}: {len(names)} constraints and the arguments {values!r}; expected a mapping for each"
        )
    found = []
    for name, given in zip(names, values, strict=True):
        if name not in CHECKS:
            raise RewardError(f"{where}: unknown constraint {name!r}.{did_you_mean(name, CHECKS)} See CHECKS.")
        kept = {key: value for key, value in (given or {}).items() if value is not None}
        taken = _ARGUMENTS[name]
        if sorted(kept) != sorted(taken):
            raise RewardError(f"{where}: {name} got the arguments {sorted(kept)}; expected {sorted(taken)}")
        for key, value in kept.items():
            _check_argument(f"{where}: {name}", key, value, taken[key].annotation)
        found.append((name, kept))
    return found


def _check_argument(where: str, key: str, value: Any, annotation: str) -> None:
    """Refuse what would pass or fail whatever the text is.

    Raises:
        RewardError: no whole number, an empty text, a list without words, an unknown relation or language.
    """
    if key.endswith("relation") and value not in RELATIONS:
        known = f"{', '.join(RELATIONS)}.{did_you_mean(str(value), RELATIONS)}"
        raise RewardError(f"{where}: unknown relation {value!r}; valid: {known}")
    if key == "language":
        is_language("a", str(value))
    if annotation == "int":
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
        good = number >= 0 and number.is_integer()
        expected = "a whole number, 0 or more"
    elif annotation == "str":
        good, expected = _is_text(value), "a text that is not empty"
    else:
        good = isinstance(value, list | tuple) and bool(value) and all(map(_is_text, value))
        expected = "a list of words, none of them empty"
    if not good:
        raise RewardError(f"{where}: {key}={value!r}; expected {expected}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _variants(text: str) -> list[str]:
    """The text as it is and without its first line, its last line, both; each with and without stars."""
    lines = text.split("\n")
    cuts = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cuts, *(cut.replace("*", "") for cut in cuts)]
