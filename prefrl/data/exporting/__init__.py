"""Labels as the rows that trainers read.

    made = export(Labelled.of(store), Choices(format="preference", ties="soft"))
    print(made.summary())  # what was left out, and why
    made.write("preferences.jsonl")

An export is a function of the store and of the choices alone: the same bytes every time. Formats are TRL's, which its
trainers and `datasets` read as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prefrl.data.comparisons import Label, Task
from prefrl.data.exporting.choices import FORMATS, Choices, Format, Labelled
from prefrl.data.exporting.files import SUFFIXES, Export
from prefrl.data.exporting.rows import MAKERS, Row
from prefrl.data.formats import content_hash
from prefrl.data.reading import Problem
from prefrl.data.splits import split_by_prompt

__all__ = ["FORMATS", "SUFFIXES", "Choices", "Export", "Format", "Labelled", "export"]


def export(data: Labelled, choices: Choices | None = None) -> Export:
    """The rows that labels make, in the order of the items, and a count of what makes none.

    Raises:
        ConfigError: the share to hold out is none.
        DataError: a strength without a margin, or too few prompts to hold any out.
    """
    choices = choices or Choices()
    rows: list[Row] = []
    left_out: Counter[str] = Counter()
    everything = choices.format == "votes"
    labels = _all_versions(data) if everything else data.live()
    for task in data.tasks:
        if task.id in data.gold and not choices.gold and not everything:
            left_out["with a known answer"] += 1
            continue
        made = list(_made_of(task, labels.get(task.id, []), data, choices))
        rows += [row for row in made if not isinstance(row, str)]
        left_out.update(why for why in made if isinstance(why, str))
    notes = _in_one_form(rows)
    return Export(splits=_split(rows, choices), left_out=dict(left_out), notes=notes)


def _made_of(task: Task, labels: Sequence[Label], data: Labelled, choices: Choices) -> Iterator[Row | str]:
    """The rows of an item, and why there is none in the place of one."""
    try:
        yield from MAKERS[choices.format](task, labels, data, choices)
    except Problem as problem:
        yield str(problem)


def _all_versions(data: Labelled) -> dict[str, list[Label]]:
    found: dict[str, list[Label]] = {}
    for label in data.labels:
        found.setdefault(label.item, []).append(label)
    return found


def _in_one_form(rows: list[Row]) -> dict[str, int]:
    """Write texts as messages where other rows have messages: a column has one type. How many rows that changed."""
    texts = [row for row in rows if isinstance(row.get("prompt"), str)]
    if not texts or len(texts) == len(rows):
        return {}
    for row in texts:
        row["prompt"] = [{"role": "user", "content": row["prompt"]}]
        said = [name for name in ("chosen", "rejected", "completion") if name in row and "kind" not in row]
        row.update({name: [{"role": "assistant", "content": row[name]}] for name in said})
    return {"written as messages, since others are": len(texts)}


def _split(rows: list[Row], choices: Choices) -> dict[str, list[Row]]:
    if not choices.held_out or not rows:
        return {"train": rows}
    train, test = split_by_prompt(rows, choices.held_out, choices.seed, key=_prompt_key)
    return {"train": train, "test": test}


def _prompt_key(row: Row) -> str:
    return content_hash(row.get("prompt") or row["question"]["problem"])
