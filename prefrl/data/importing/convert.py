"""Rows to what people are asked, and to what they said of it before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from prefrl.data.comparisons import CheckItem, Item, Label, Outcome, StepItem, Task
from prefrl.data.exporting.choices import ANONYMOUS
from prefrl.data.fields import number
from prefrl.data.formats import content_hash, pair_reader, read_completion, read_prompt
from prefrl.data.importing.columns import Layout
from prefrl.data.reading import Problem
from prefrl.data.tables import Table
from prefrl.types import Prompt, StopReason

Row = Mapping[str, Any]
IMPORTED = "imported"  # who said what a file says, where it does not say who
_WINNERS: dict[str, Outcome] = {
    **dict.fromkeys(("a", "1", "first", "modela", "left", "responsea", "chosen"), "first"),
    **dict.fromkeys(("b", "2", "second", "modelb", "right", "responseb", "rejected"), "second"),
    **dict.fromkeys(("tie", "both", "equal", "same", "0"), "tie"),
    **dict.fromkeys(("bothbad", "tiebothbad", "neither"), "both_bad"),
}
# What an export says of the votes on a pair, and no question says.
VOTES = ("label", "tie", "n_votes", "agreement", "annotator_ids", "annotator", "checkpoints", "margin", "weight")


class Asked(NamedTuple):
    """A task, and the labels that its row has."""

    task: Task
    labels: tuple[Label, ...] = ()


def reader(table: Table, layout: Layout) -> Callable[[dict[str, Any]], Iterator[Asked | str]]:
    """What makes tasks of one row; a row that cannot be one raises `Problem`, and for a part that cannot, stands why.

    Raises:
        DataError: the layout does not fit the table.
    """
    layout.check(table.columns)
    if layout.shape == "pair":
        return _pairs(table, layout)
    others = [name for name in layout.unused(table.columns) if name not in VOTES]
    read = {"completions": _completions, "steps": _steps, "check": _check}[layout.shape]
    return lambda row: read(row, layout, others)


def texts_of(task: Task) -> tuple[str, ...]:
    """The texts of a task that people compare or judge."""
    if isinstance(task, Item):
        return task.first.text, task.second.text
    return task.steps if isinstance(task, StepItem) else (task.completion.text,)


def key_of(task: Task) -> str:
    """Hash of what is asked, whichever of two answers comes first, and in whatever round."""
    texts = texts_of(task)
    return content_hash([{task.kind: [task.prompt.content, *(sorted(texts) if isinstance(task, Item) else texts)]}])


def _pairs(table: Table, layout: Layout) -> Callable[[dict[str, Any]], Iterator[Asked | str]]:
    names = {"first": "chosen", "second": "rejected", "prompt": "prompt"}
    moved = {column: names[role] for role, column in layout.roles.items() if role in names}
    kept = [name for name in layout.unused(table.columns) if name not in (*VOTES, *names.values())]
    columns = ("id", *kept, *moved.values())
    read = pair_reader(Table([], tuple(dict.fromkeys(columns)), table.origin))

    def convert(row: dict[str, Any]) -> Iterator[Asked | str]:
        first, second = (row.get(layout.roles[side]) for side in ("first", "second"))
        if first is not None and first == second:
            raise Problem("answers that are the same")
        pair = read({name: row.get(name) for name in ("id", *kept)} | {new: row.get(old) for old, new in moved.items()})
        if pair.chosen.text.split() == pair.rejected.text.split():
            raise Problem("answers that differ in spaces only")
        told = row.get("checkpoints")
        policies = tuple(map(str, told)) if isinstance(told, list | tuple) and len(told) == 2 else ("", "")
        item = Item(
            prompt=_without_id(pair.prompt),
            first=pair.chosen,
            second=pair.rejected,
            id=_text(row, layout, "item_id"),
            checkpoints=(
                _text(row, layout, "first_policy") or policies[0],
                _text(row, layout, "second_policy") or policies[1],
            ),
            round=_round(row, layout),
            why=_text(row, layout, "source"),
        )
        yield Asked(item, tuple(_labels(row, layout, item.id)))

    return convert


def _labels(row: Row, layout: Layout, item: str) -> Iterator[Label]:
    """Who said what of a pair: by a column that names the better one, or by the names of the two columns."""
    strength = _text(row, layout, "strength")
    if "winner" in layout.roles:
        said = "".join(filter(str.isalnum, str(row.get(layout.roles["winner"])).lower()))
        if said in _WINNERS:
            yield _label(item, IMPORTED, _WINNERS[said], strength)
        return
    if not layout.chosen:
        return
    people = [f"{ANONYMOUS}{name}" for name in _people(row)] or [IMPORTED]
    agreed, tied = (_share(row, name, default) for name, default in (("agreement", 1.0), ("tie", 0.0)))
    first = 0 if tied == 1.0 else round(agreed * len(people))
    ties = round((agreed if tied == 1.0 else tied) * len(people))
    for place, person in enumerate(people):
        outcome: Outcome = "first" if place < first else "tie" if place < first + ties else "second"
        yield _label(item, person, outcome, strength if outcome == "first" else "")


def _people(row: Row) -> list[str]:
    given = row.get("annotator_ids")
    if isinstance(given, list | tuple):
        return [str(name) for name in given]
    return [str(row["annotator"])] if row.get("annotator") else []


def _share(row: Row, name: str, default: float) -> float:
    return default if row.get(name) in (None, "") else number(row[name], name, 0.0, 1.0)


def _label(item: str, person: str, outcome: Outcome, strength: str) -> Label:
    """A label with an id of its content: the same file again brings the same labels."""
    return Label(
        id=content_hash([{"imported": [item, person, outcome, strength]}]),
        item=item,
        annotator=person,
        version=1,
        outcome=outcome,
        strength=strength,
    )


def _completions(row: Row, layout: Layout, others: Sequence[str]) -> Iterator[Asked | str]:
    prompt = _prompt(row, layout, others)
    given, policies = row.get(layout.roles["completions"]), row.get(layout.roles.get("policies", ""))
    if not isinstance(given, list | tuple) or len(given) < 2:
        raise Problem("completions is not a list of two or more")
    if not isinstance(policies, list | tuple) or len(policies) != len(given):
        policies = [""] * len(given)
    read = {read_completion(prompt, text): str(policy) for text, policy in zip(given, policies, strict=True)}
    if len(read) < 2:
        raise Problem("completions that are all the same")
    yield from ["a completion that equals another one"] * (len(given) - len(read))
    which, why = _round(row, layout), _text(row, layout, "source")
    for (first, one), (second, other) in combinations(read.items(), 2):
        yield Asked(Item(prompt=prompt, first=first, second=second, checkpoints=(one, other), round=which, why=why))


def _steps(row: Row, layout: Layout, others: Sequence[str]) -> Iterator[Asked | str]:
    steps = row.get(layout.roles["steps"])
    if not isinstance(steps, list | tuple) or not steps or not all(isinstance(s, str) and s.strip() for s in steps):
        raise Problem("steps is not a list of texts")
    yield Asked(
        StepItem(
            prompt=_prompt(row, layout, others),
            steps=tuple(steps),
            id=_text(row, layout, "item_id"),
            answer=_text(row, layout, "answer") or None,
            checkpoint=_text(row, layout, "policy"),
            round=_round(row, layout),
            why=_text(row, layout, "source"),
        )
    )


def _check(row: Row, layout: Layout, others: Sequence[str]) -> Iterator[Asked | str]:
    prompt = _prompt(row, layout, others)
    completion = read_completion(prompt, row.get(layout.roles["completion"]))
    finished = _text(row, layout, "stop") != StopReason.LENGTH
    yield Asked(
        CheckItem(
            prompt=prompt,
            completion=replace(completion, finished=finished),
            id=_text(row, layout, "item_id"),
            question=_text(row, layout, "question"),
            answer=_text(row, layout, "answer") or None,
            verdicts=_verdicts(row.get(layout.roles.get("verdicts", ""))),
            checkpoint=_text(row, layout, "policy"),
            round=_round(row, layout),
            why=_text(row, layout, "source"),
        )
    )


def _verdicts(given: Any) -> dict[str, float]:
    """What programs said of an answer, such as the parts of its reward in `samples.jsonl` of a run."""
    if given is not None and not isinstance(given, Mapping):
        raise Problem("verdicts are not an object of names and numbers")
    return {str(name): number(said, "a verdict") for name, said in (given or {}).items() if said is not None}


def _prompt(row: Row, layout: Layout, others: Sequence[str]) -> Prompt:
    return _without_id(read_prompt(row, row.get(layout.roles["prompt"]), others))


def _without_id(prompt: Prompt) -> Prompt:
    """The prompt without a column `id`, which it has as its own."""
    return replace(prompt, columns={name: value for name, value in prompt.columns.items() if name != "id"})


def _text(row: Row, layout: Layout, role: str) -> str:
    value = row.get(layout.roles.get(role, ""))
    return "" if value is None else str(value)


def _round(row: Row, layout: Layout) -> int:
    value = _text(row, layout, "round")
    return int(number(value, "round", 0.0)) if value else 0
