"""Completions judged one by one as training rows; the sides of a pair count as two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prefrl.data.chat import encode_completion
from prefrl.data.formats import to_pairs, to_unpaired
from prefrl.data.reading import Read
from prefrl.data.tables import Table
from prefrl.errors import DataError
from prefrl.model.language import LanguageModel
from prefrl.recipes.pairs import Rows, policy_rows
from prefrl.types import Completion, Pair, Prompt, Row

Judged = tuple[Prompt, Completion, bool]  # a completion that is good (True) or bad


def to_judgements(table: Table, *, paired: bool, max_bad_fraction: float) -> Read[Pair] | Read[Judged]:
    """Pairs or, where a table has none and none are needed, completions judged one by one.

    Raises:
        DataError: the table has completions judged one by one, and pairs are needed; or it has neither.
    """
    has_pairs = bool({"chosen", "rejected"} & set(table.columns))
    if paired and not has_pairs and {"prompt", "completion", "label"} <= set(table.columns):
        raise DataError(
            f"{table.origin} has completions judged one by one (prompt, completion, label), and this algorithm "
            "compares pairs (prompt, chosen, rejected). Type: --algorithm kto"
        )
    if paired or has_pairs:
        return to_pairs(table, max_bad_fraction=max_bad_fraction)
    return to_unpaired(table, max_bad_fraction=max_bad_fraction)


def single_rows(items: Sequence[Pair | Judged], model: LanguageModel) -> list[Rows]:
    """One row for each completion, of side +1 where it is good (or chosen), each an atom of its own."""
    rows: list[Row] = []
    for item in items:
        found = policy_rows([item], model)[0] if isinstance(item, Pair) else [_row(item, model)]
        rows += [replace(row, atom=len(rows) + i) for i, row in enumerate(found)]
    return [(row,) for row in rows]


def _row(item: Judged, model: LanguageModel) -> Row:
    prompt, completion, good = item
    ids = tuple(encode_completion(model.tokenizer, prompt, completion))
    return Row(prompt_ids=model.encode(prompt), completion_ids=ids, mask=(True,) * len(ids), side=1 if good else -1)
