"""Micro-batches filled to a token budget from rows sorted by prompt and length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from prefrl.types import Row


def pack(rows: Sequence[Row], token_budget: int, *, shared: bool = True) -> list[list[Row]]:
    """Split rows into micro-batches of at most `token_budget` computed token positions (padding included).

    Rows with the same atom stay together, rows with the same prompt come together, and lengths within a
    micro-batch are alike. An atom larger than the budget gets a micro-batch of its own: nothing is cut.
    `shared` says whether the module computes a prompt once for all its completions.
    """
    atoms: dict[tuple[int, int], list[Row]] = {}
    for index, row in enumerate(rows):
        # A row outside a pair or a ranked list is an atom of its own.
        atoms.setdefault((1, row.atom) if row.together else (0, index), []).append(row)
    order = sorted(atoms.values(), key=lambda a: (len(a[0].prompt_ids), a[0].prompt_ids, _longest(a)))
    batches: list[list[Row]] = []
    current: list[Row] = []
    for atom in order:
        if current and positions([*current, *atom], shared=shared) > token_budget:
            batches.append(current)
            current = []
        current = [*current, *atom]
    return [*batches, current] if current else batches


def positions(rows: Sequence[Row], *, shared: bool = True) -> int:
    """Token positions computed for a micro-batch of distinct rows, padded; `shared` prompts count once.

    A teacher computes the same rows, with its own prompts where it has any: the larger of the two counts.
    """
    taught = any(row.teacher_prompt_ids is not None for row in rows)
    own = _positions([row.prompt_ids for row in rows], rows, shared)
    if not taught:
        return own
    return max(own, _positions([row.teacher_prompt_ids or row.prompt_ids for row in rows], rows, shared))


def _positions(prompts: Sequence[tuple[int, ...]], rows: Sequence[Row], shared: bool) -> int:
    distinct = {(prompt, row.completion_ids) for prompt, row in zip(prompts, rows, strict=True)}
    computed = len(set(prompts)) if shared else len(distinct)
    return computed * max(len(p) for p in prompts) + len(distinct) * _longest(rows)


def distinct_rows(rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Rows without repeats, and for every row the place of its equal among them.

    A completion that stands in several pairs of its prompt is computed once for all of them.
    """
    places: dict[tuple[tuple[int, ...] | None, ...], int] = {}
    kept: list[Row] = []
    index = []
    for row in rows:
        key = (row.prompt_ids, row.completion_ids, row.mask, row.teacher_prompt_ids)
        if row.observations is not None or key not in places:
            places[key] = len(kept)
            kept.append(row)
        index.append(places[key])
    return kept, index


def row_columns(
    rows: Sequence[Row], *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """What a `Batch` says of whole rows, each (R,), by name."""
    kinds = {"side": torch.long, "atom": torch.long, "annotator": torch.long, "rank": torch.long}
    names = ("side", "atom", "label", "margin", "weight", "tie", "annotator", "rank")
    return {
        name: torch.tensor([getattr(row, name) for row in rows], device=device, dtype=kinds.get(name, dtype))
        for name in names
    }


@torch.no_grad()
def row_outputs(
    rows: Sequence[Row], compute: Callable[[Sequence[Row]], Tensor], token_budget: int, *, shared: bool = True
) -> list[Tensor]:
    """Outputs (n,) of every row, in the order given, computed in micro-batches; 0 where the mask is False.

    `compute` gives the outputs of distinct rows' masked-in tokens, laid end to end (N,), or (N, K), and then those of
    a row are (n, K).
    """
    result: dict[int, Tensor] = {}
    for micro in pack(rows, token_budget, shared=shared):
        distinct, index = distinct_rows(micro)
        parts = compute(distinct).float().cpu().split([sum(row.mask) for row in distinct])
        for row, place in zip(micro, index, strict=True):
            values = torch.zeros(len(row.mask), *parts[place].shape[1:])
            values[torch.tensor(row.mask)] = parts[place]
            result[id(row)] = values
    return [result[id(row)] for row in rows]


def _longest(rows: Sequence[Row]) -> int:
    return max(len(row.completion_ids) for row in rows)
