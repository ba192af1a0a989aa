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
    fill = _Fill(shared)
    for atom in order:
        if current and fill.with_more(atom) > token_budget:
            batches.append(current)
            current, fill = [], _Fill(shared)
        current += atom
        fill.add(atom)
    return [*batches, current] if current else batches


def positions(rows: Sequence[Row], *, shared: bool = True) -> int:
    """Token positions computed for a micro-batch of distinct rows, padded; `shared` prompts count once.

    A teacher computes the same rows, with its own prompts where it has any: the larger of the two counts.
    """
    return _Fill(shared).with_more(rows)


class _Fill:
    """Token positions of a micro-batch that grows: every row is looked at once, however many there are."""

    def __init__(self, shared: bool) -> None:
        self._views = (_View(shared), _View(shared))  # with the rows' own prompts, and with a teacher's

    def with_more(self, rows: Sequence[Row]) -> int:
        """How many there would be with these rows too."""
        return max(view.with_more(keys) for view, keys in zip(self._views, _keys(rows), strict=True))

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows in."""
        for view, keys in zip(self._views, _keys(rows), strict=True):
            view.add(keys)


_Key = tuple[tuple[int, ...], tuple[int, ...]]  # prompt and completion


def _keys(rows: Sequence[Row]) -> tuple[list[_Key], list[_Key]]:
    own = [(row.prompt_ids, row.completion_ids) for row in rows]
    return own, [(row.teacher_prompt_ids or row.prompt_ids, row.completion_ids) for row in rows]


class _View:
    """The same, with prompts of one kind."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.prompts: set[tuple[int, ...]] = set()
        self.rows: set[_Key] = set()
        self.prompt = self.completion = 0  # the longest

    def with_more(self, keys: Sequence[_Key]) -> int:
        rows = len(self.rows) + len(set(keys) - self.rows)
        computed = len(self.prompts) + len({p for p, _ in keys} - self.prompts) if self.shared else rows
        longest = max(self.prompt, max(len(p) for p, _ in keys))
        return computed * longest + rows * max(self.completion, max(len(c) for _, c in keys))

    def add(self, keys: Sequence[_Key]) -> None:
        self.rows.update(keys)
        self.prompts.update(p for p, _ in keys)
        self.prompt = max(self.prompt, max(len(p) for p, _ in keys))
        self.completion = max(self.completion, max(len(c) for _, c in keys))


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
