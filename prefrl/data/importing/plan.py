"""What an import would bring: everything counted before anything is stored."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prefrl.data.comparisons import Label, Outcome, Task
from prefrl.data.importing.columns import Layout, guess
from prefrl.data.importing.convert import Asked, key_of, reader, texts_of
from prefrl.data.importing.duplicates import near_duplicates
from prefrl.data.importing.leaks import names_itself
from prefrl.data.reading import Problem
from prefrl.data.tables import Table
from prefrl.errors import ConfigError

if TYPE_CHECKING:
    from prefrl.data.preferences import PreferenceStore

BATCH = 500  # tasks that are stored in one transaction; others write between two of them
LEAK, NEAR = "identity_leak", "near_duplicate"
Doubt = Literal["keep", "leave_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is taken and what is left out.

    Attributes:
        near: whether a question is kept that is nearly the same as another one.
        similarity: share of equal characters from which on it is.
        leaks: whether an answer is kept in which a model names itself.
        labels: whether the better answer that a file names is taken as a label, and not only as a pair to ask about.
        overlap: people who should label each item.
        most_characters: of a text that people read; rows with longer ones are left out.
    """

    near: Doubt = "keep"
    similarity: float = 0.9
    leaks: Doubt = "keep"
    labels: bool = False
    overlap: int = 1
    most_characters: int = 1_000_000

    def __post_init__(self) -> None:
        if not 0.5 <= self.similarity < 1.0 or self.overlap < 1:
            raise ConfigError(
                f"The similarity is {self.similarity} and the overlap {self.overlap}; expected 0.5 to 1, and 1 or more."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an import would bring.

    layout    what the columns mean
    tasks     what people will be asked
    labels    what they said of it before
    left_out  how many were left out, by reason
    warnings  how many of the tasks are doubtful, by reason
    first     the first row that was left out or doubtful, by reason, counted from 1
    unused    columns that mean nothing here, which are kept beside the prompt
    rows      rows of the file
    """

    layout: Layout
    tasks: Sequence[Task]
    labels: Sequence[Label] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    warnings: Mapping[str, int] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    unused: Sequence[str] = ()
    rows: int = 0

    def summary(self) -> str:
        """One line for people, such as `97 of 100 rows; left out: 3 asked twice (first: row 8)`."""
        reasons = ", ".join(f"{n} {why} (first: row {self.first[why]})" for why, n in self.left_out.items())
        doubts = "".join(f"; {n} {why} (first: row {self.first[why]})" for why, n in self.warnings.items())
        said = f" with {len(self.labels)} labels" if self.labels else ""
        return f"{len(self.tasks)} items{said} of {self.rows} rows; left out: {reasons or 'nothing'}{doubts}"


class _Counted:
    """Reasons, how often each, and the first row of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, int] = {}

    def add(self, why: str, row: int) -> None:
        self.counts[why] = self.counts.get(why, 0) + 1
        self.first[why] = min(row, self.first.get(why, row))


def plan(
    table: Table, layout: Layout | None = None, *, rules: Rules | None = None, known: Collection[str] = ()
) -> Plan:
    """What a table would bring to a project.

    Args:
        table: the rows.
        layout: what the columns mean; guessed from their names without it.
        rules: what is taken.
        known: `keys_of` the project.

    Raises:
        DataError: no column, or the wrong ones, can be labelled.
    """
    rules = rules or Rules()
    layout = layout or guess(table.columns)
    left_out, warnings = _Counted(), _Counted()
    taken = _distinct(_read(table, layout, rules, left_out), set(known), left_out, warnings)
    taken = _doubtful(taken, rules, left_out, warnings)
    return Plan(
        layout=layout,
        tasks=[asked.task for _, asked in taken],
        labels=[label for _, asked in taken for label in asked.labels],
        left_out=left_out.counts,
        warnings=warnings.counts,
        first={**warnings.first, **left_out.first},
        unused=layout.unused(table.columns),
        rows=len(table.rows),
    )


def keys_of(store: PreferenceStore) -> set[str]:
    """`key_of` of all that a store asks, and the ids under which it does."""
    tasks = store.tasks()
    return {*map(key_of, tasks), *(task.id for task in tasks)}


def carry_out(store: PreferenceStore, plan: Plan, *, by: str = "") -> Iterator[int]:
    """Store the tasks in batches, others writing in between, then the labels; after each, how many are stored."""
    tasks = iter(plan.tasks)
    done = 0
    while batch := list(islice(tasks, BATCH)):
        store.add_tasks(batch, by=by)
        done += len(batch)
        yield done
    for start in range(0, len(plan.labels), BATCH):
        _add_labels(store, plan.labels[start : start + BATCH])
        yield done


def _add_labels(store: PreferenceStore, labels: Sequence[Label]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "labels.jsonl"
        lines.write_text("".join(f"{json.dumps({'label': label.to_dict()})}\n" for label in labels), encoding="utf-8")
        store.import_(lines)


def _read(table: Table, layout: Layout, rules: Rules, left_out: _Counted) -> Iterator[tuple[int, Asked]]:
    convert = reader(table, layout)
    for number, row in enumerate(table.rows, start=1):
        for found in _converted(convert, row, rules):
            if isinstance(found, str):
                left_out.add(found, number)
            else:
                yield number, found


def _converted(
    convert: Callable[[dict[str, Any]], Iterator[Asked | str]], row: dict[str, Any], rules: Rules
) -> Iterator[Asked | str]:
    """What is asked by a row, and why not in the place of what cannot be."""
    try:
        for found in convert(row):
            if isinstance(found, str):
                yield found
                continue
            asked = found.task.prompt
            turns = (
                [asked.text or ""] if asked.messages is None else [str(turn.get("content")) for turn in asked.messages]
            )
            longest = max(map(len, (*texts_of(found.task), *turns)))
            labels = found.labels if rules.labels else ()
            if longest > rules.most_characters:
                yield f"with a text of more than {rules.most_characters} characters"
            else:
                yield Asked(_wider(found.task, max(rules.overlap, len(labels))), labels)
    except Problem as problem:
        yield str(problem)


def _distinct(
    found: Iterator[tuple[int, Asked]], known: set[str], left_out: _Counted, warnings: _Counted
) -> list[tuple[int, Asked]]:
    """Each question once, whichever of its answers comes first; what later rows say of it goes to the first one."""
    first: dict[str, int] = {}
    ids: set[str] = set()
    kept: list[tuple[int, Asked]] = []
    for number, asked in found:
        key = key_of(asked.task)
        if key in first:
            place, earlier = kept[first[key]]
            labels = _merged(earlier, asked)
            more = len(labels) > len(earlier.labels)
            (warnings if more else left_out).add("another label of an earlier row" if more else "asked twice", number)
            kept[first[key]] = (place, Asked(_wider(earlier.task, len(labels)), labels))
        elif key in known or asked.task.id in known:
            left_out.add("asked in the project already", number)
        elif asked.task.id in ids:
            left_out.add("with the id of another question", number)
        else:
            first[key] = len(kept)
            ids.add(asked.task.id)
            kept.append((number, asked))
    return kept


def _merged(earlier: Asked, later: Asked) -> tuple[Label, ...]:
    """The labels of both, those of the later one as the sides of the earlier one are; one of each person."""
    exchanged = texts_of(earlier.task) != texts_of(later.task)
    turned: dict[Outcome, Outcome] = {"first": "second", "second": "first"} if exchanged else {}
    people = {label.annotator for label in earlier.labels}
    more = [
        replace(label, item=earlier.task.id, outcome=turned.get(label.outcome, label.outcome))
        for label in later.labels
        if label.annotator not in people
    ]
    return (*earlier.labels, *more)


def _wider(task: Task, people: int) -> Task:
    return replace(task, overlap=max(task.overlap, people))


def _doubtful(
    found: list[tuple[int, Asked]], rules: Rules, left_out: _Counted, warnings: _Counted
) -> list[tuple[int, Asked]]:
    """Near duplicates and answers that name their model: left out, or kept, marked and counted."""
    compared = ["\n".join([read.task.prompt.question, *sorted(texts_of(read.task))]) for _, read in found]
    near = near_duplicates(compared, rules.similarity)
    kept = []
    for index, (number, read) in enumerate(found):
        leaks = any(map(names_itself, texts_of(read.task)))
        doubts = [
            (LEAK, leaks, rules.leaks, "in which a model names itself"),
            (NEAR, index in near, rules.near, "nearly the same as another one"),
        ]
        there = [(mark, why, rule) for mark, is_there, rule, why in doubts if is_there]
        if out := [why for _, why, rule in there if rule == "leave_out"]:
            left_out.add(out[0], number)
            continue
        for _, why, _ in there:
            warnings.add(why, number)
        kept.append((number, Asked(_marked(read.task, [mark for mark, _, _ in there]), read.labels)))
    return kept


def _marked(task: Task, marks: list[str]) -> Task:
    if not marks:
        return task
    columns = {**task.prompt.columns, **dict.fromkeys(marks, True)}
    return replace(task, prompt=replace(task.prompt, columns=columns))
