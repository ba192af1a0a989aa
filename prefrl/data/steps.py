"""Solutions whose steps are labelled: read from any of the usual layouts, and written in TRL's.

A label is the probability that a step is fine, 1 or 0 where somebody knows, or None where nobody says: None is no
number, so that no cast can make a right or a wrong step of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from prefrl.data.formats import MAX_BAD_FRACTION, read_prompt
from prefrl.data.reading import Problem, collect
from prefrl.data.steps_styles import IGNORED, STYLES, Count, Rating, Solution
from prefrl.data.steps_text import split_steps
from prefrl.data.tables import Table, load_table
from prefrl.errors import ConfigError, DataError, did_you_mean
from prefrl.types import Prompt

__all__ = ["AfterError", "Label", "Neutral", "Stepped", "find_style", "load_stepped", "split_steps", "write_stepped"]

Label: TypeAlias = float | None
Neutral = Literal["positive", "negative", "ignore"]
AfterError = Literal["ignore", "negative", "keep"]

_NEUTRAL: dict[str, Label] = {"positive": 1.0, "negative": 0.0, "ignore": None}
_AFTER_ERROR = ("ignore", "negative", "keep")
_SEPARATORS = ("\n\n", "\n", "")
_OWN = ("completions", "labels", "counts", "outcome", "separator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """One solution with its labelled steps.

    steps    texts; `"".join(steps)` is the solution, as what stands between two steps ends the first one
    labels   P(step is fine) in [0, 1]; None is ignored, in losses and in figures
    counts   (k, N): k of N continuations from the end of the step were right; None where none was tried
    outcome  whether the final answer was right, where it is known
    """

    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[Label, ...]
    counts: tuple[Count, ...] = ()
    outcome: float | None = None

    def __post_init__(self) -> None:
        sizes = {len(self.steps), len(self.labels), len(self.counts or self.steps)}
        if len(sizes) != 1 or not self.steps:
            raise DataError(
                f"solution of {self.prompt.id!r}: {len(self.steps)} steps, {len(self.labels)} labels and "
                f"{len(self.counts)} counts; expected one label a step, one count each or none at all, and a step"
            )
        if wrong := [x for x in (*self.labels, self.outcome) if x is not None and not 0.0 <= x <= 1.0]:
            raise DataError(f"solution of {self.prompt.id!r}: label {wrong[0]}; expected a number in [0, 1], or None")
        if odd := [c for c in self.counts if c is not None and not (0 <= c[0] <= c[1] and c[1] >= 1)]:
            raise DataError(
                f"solution of {self.prompt.id!r}: counts {odd[0]}; expected 0 <= right <= tried, tried >= 1"
            )

    @property
    def text(self) -> str:
        """The whole solution."""
        return "".join(self.steps)

    @property
    def first_error(self) -> int:
        """Index of the first step whose label is below 1/2; -1 if there is none."""
        return next((at for at, label in enumerate(self.labels) if label is not None and label < 0.5), -1)


def load_stepped(
    source: Any,
    *,
    style: str = "auto",
    neutral: Neutral = "positive",
    after_error: AfterError = "ignore",
    separator: str = "\n",
    limit: int | None = None,
    max_bad_fraction: float = MAX_BAD_FRACTION,
) -> tuple[list[Stepped], dict[str, int]]:
    """Read step-labelled solutions.

    Blank steps are joined to the step before them. Rows that cannot be used are dropped.

    Args:
        source: what `load_table` reads.
        style: one of `STYLES`, or auto to tell by the columns.
        neutral: what a step is that is neither good nor bad (rated 0 in PRM800K).
        after_error: what becomes of labels after a step that is known to be wrong (labelled 0, or neutral and
            negative): ignored, all 0, or kept as they are. A share between 0 and 1 is no such step.
        separator: what stands between two steps where the source does not say; not added to steps that end with it.
        limit: read only this many rows from the top.
        max_bad_fraction: largest share of rows that may be dropped.

    Returns:
        The solutions, and how many rows were dropped or labels changed, by reason; nothing else is lost.

    Raises:
        ConfigError: an unknown style or policy.
        DataError: no style fits the columns, or too many rows are bad.
    """
    _check("neutral", neutral, _NEUTRAL)
    _check("after_error", after_error, _AFTER_ERROR)
    _check("style", style, ("auto", *STYLES))
    table = load_table(source, limit=limit)
    name = find_style(table.columns) if style == "auto" else style
    if not name or not STYLES[name].fits(table.columns):
        raise DataError(_columns_message(table, [name] if name else list(STYLES)))
    reader = STYLES[name]
    counts: Counter[str] = Counter()
    used = {*_OWN, "id", "prompt"}.union(*reader.columns)
    others = [name for name in table.columns if name not in used]

    def convert(row: dict[str, Any]) -> list[Stepped]:
        changed: Counter[str] = Counter()
        read = [_stepped(row, one, others, separator, neutral, changed) for one in reader.read(row)]
        found = [_after_error(one, after_error, changed) for one in read]
        counts.update(changed)
        return found

    read = collect(table, convert, max_bad_fraction)
    dropped = {f"rows dropped: {reason}": count for reason, count in read.dropped.items()}
    return [one for found in read.items for one in found], dropped | dict(counts)


def _check(name: str, value: str, valid: Iterable[str]) -> None:
    if value not in valid:
        raise ConfigError(f"{name} is {value!r}; valid: {', '.join(valid)}.{did_you_mean(value, valid)}")


def find_style(columns: Sequence[str]) -> str:
    """The style that columns are told to be of; empty where they are of none."""
    return next((name for name, style in STYLES.items() if style.fits(columns)), "")


def _columns_message(table: Table, names: Sequence[str]) -> str:
    layouts = [f"{name}: {' or '.join(', '.join(sorted(c)) for c in STYLES[name].columns)}" for name in names]
    return (
        f"{table.origin} has the columns {', '.join(table.columns)}. Labelled steps have {'; '.join(layouts)}. "
        "Rename columns, or name the style."
    )


def _stepped(
    row: dict[str, Any],
    found: Solution,
    others: Sequence[str],
    separator: str,
    neutral: Neutral,
    changed: Counter[str],
) -> Stepped:
    texts, ratings, counts = _joined(found, separator, changed)
    if found.alternative:
        changed["other completions of a step, read as solutions of their own that end there"] += 1
    neutrals = ratings.count("neutral")
    if neutrals:
        changed[f"neutral steps read as {'ignored' if neutral == 'ignore' else neutral}"] += neutrals
    return Stepped(
        prompt=read_prompt(row, found.prompt if isinstance(found.prompt, str) else list(found.prompt), others),
        steps=texts,
        labels=tuple(_NEUTRAL[neutral] if rating == "neutral" else rating for rating in ratings),
        counts=counts,
        outcome=found.outcome,
    )


def _joined(
    found: Solution, separator: str, changed: Counter[str]
) -> tuple[tuple[str, ...], list[Rating], tuple[Count, ...]]:
    """Steps with what stands between them, ready to be joined; blank ones are part of the step before."""
    between = separator if found.separator is None else found.separator
    exact = found.separator is not None
    texts: list[str] = []
    kept: list[int] = []
    last = len(found.texts) - 1
    for at, text in enumerate(found.texts):
        ended = at == last or (not exact and text.endswith(between))
        whole = text if ended else text + between
        if text.strip():
            texts.append(whole)
            kept.append(at)
            continue
        if not kept or found.ratings[at] == 0.0:
            raise Problem("a blank step is the first one" if not kept else "a blank step is labelled wrong")
        texts[-1] += whole
        changed["blank steps joined to the step before"] += 1
    return tuple(texts), [found.ratings[at] for at in kept], tuple(found.counts[at] for at in kept if found.counts)


def _after_error(solution: Stepped, policy: AfterError, changed: Counter[str]) -> Stepped:
    first = solution.labels.index(0.0) if 0.0 in solution.labels else len(solution.labels)
    later = solution.labels[first + 1 :]
    wanted: Label = None if policy == "ignore" else 0.0
    touched = sum(label != wanted for label in later)
    if policy == "keep" or not touched:
        return solution
    word = "ignored" if policy == "ignore" else "set to 0"
    changed[f"labels after the first error {word}"] += touched
    labels = (*solution.labels[: first + 1], *(wanted for _ in later))
    return Stepped(
        prompt=solution.prompt, steps=solution.steps, labels=labels, counts=solution.counts, outcome=solution.outcome
    )


def write_stepped(path: str | Path, solutions: Sequence[Stepped], *, ignored: Literal["null", "-100"] = "null") -> None:
    """Write TRL's stepwise rows, one JSON object a line: prompt, completions, labels, and counts where there are some.

    `load_stepped` gives the same solutions again. Labels are booleans where all of a file are 1 or 0.

    Args:
        path: the file.
        solutions: what is written.
        ignored: what stands for None: null, which no cast turns into a label, or -100, which TRL's trainer skips. With
            -100 labels are written as whole numbers, since beside booleans a table would cast -100 to true.

    Raises:
        DataError: -100 was asked for and a label is a share, which that trainer would cut down to 0.
    """
    labels = [label for solution in solutions for label in solution.labels]
    soft = any(label not in (0.0, 1.0, None) for label in labels)
    if ignored == "-100" and soft:
        raise DataError("A label is a share, which a trainer that skips -100 cuts down to 0; write null for ignored.")
    shown: dict[Label, Any] = {1.0: True, 0.0: False, None: None} if not soft else {}
    if ignored == "-100" and None in labels:
        shown = {1.0: 1, 0.0: 0, None: IGNORED}
    counted = any(solution.counts for solution in solutions)
    lines = [json.dumps(_line(one, shown, counted), ensure_ascii=False, allow_nan=False) for one in solutions]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _line(solution: Stepped, shown: dict[Label, Any], counted: bool) -> dict[str, Any]:
    inner = solution.steps[:-1]
    between = next(s for s in _SEPARATORS if all(step.endswith(s) for step in inner)) if inner else ""
    counts = [None if one is None else list(one) for one in solution.counts or (None,) * len(solution.steps)]
    others = {k: v for k, v in solution.prompt.columns.items() if k not in {*_OWN, "id", "prompt"}}
    return {
        **others,
        "id": solution.prompt.id,
        "prompt": solution.prompt.content,
        "completions": [*(step[: len(step) - len(between)] for step in inner), solution.steps[-1]],
        "labels": [shown.get(label, label) for label in solution.labels],
        **({"counts": counts} if counted else {}),
        **({} if solution.outcome is None else {"outcome": solution.outcome}),
        "separator": between,
    }
