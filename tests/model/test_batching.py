"""Every row once, pairs together, micro-batches within the budget."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from tiny import random_rows

from prefrl.model.batching import distinct_rows, pack, positions, row_outputs
from prefrl.types import Row


def row(prompt=3, completion=2, *, atom=0, side=0, first=0):
    """A row whose prompt is told from others by `first`."""
    return Row(
        prompt_ids=(first, *range(1, prompt)),
        completion_ids=(7,) * completion,
        mask=(True,) * completion,
        atom=atom,
        side=side,
    )


def test_positions_counts_distinct_prompts_once_and_padding():
    # Two distinct prompts padded to 5, three completions padded to 4.
    assert positions([row(3, 4), row(3, 1), row(5, 2)]) == 2 * 5 + 3 * 4


def test_nothing_makes_no_batch():
    assert pack([], 100) == []


@pytest.mark.parametrize("budget", [1, 20, 40, 64, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_once_within_the_budget(budget, seed):
    rows = random_rows({1: 2, 3: 4, 4: 1, 9: 5}, seed=seed)
    random.Random(seed).shuffle(rows)
    batches = pack(rows, budget)
    assert sorted(id(r) for batch in batches for r in batch) == sorted(id(r) for r in rows)
    assert all(batches)
    assert all(positions(batch) <= budget or len(batch) == 1 for batch in batches)


def test_a_budget_for_all_makes_one_batch_and_a_tiny_one_a_batch_a_row():
    rows = random_rows({3: 4, 5: 4})
    assert len(pack(rows, positions(rows))) == 1
    assert len(pack(rows, positions(rows) - 1)) == 2
    assert [len(batch) for batch in pack(rows, 1)] == [1] * 8


def test_rows_of_a_prompt_come_together_with_lengths_alike():
    rows = [row(3, n, first=p) for n in (5, 1, 3) for p in (8, 9)]
    (batch,) = pack(rows, 10_000)
    assert [(r.prompt_ids[0], len(r.completion_ids)) for r in batch] == [(8, 1), (8, 3), (8, 5), (9, 1), (9, 3), (9, 5)]


@pytest.mark.parametrize("budget", [1, 24, 10_000])
def test_the_two_sides_of_a_pair_stay_together(budget):
    pairs = [row(4, n, atom=atom, side=side, first=atom) for atom in range(5) for side, n in ((1, 2), (-1, 6))]
    random.Random(0).shuffle(pairs)
    batches = pack(pairs, budget)
    assert sorted(r.atom for batch in batches for r in batch) == sorted(r.atom for r in pairs)
    for batch in batches:
        sides = {atom: sorted(r.side for r in batch if r.atom == atom) for atom in {r.atom for r in batch}}
        assert set(map(tuple, sides.values())) == {(-1, 1)}


def test_the_atom_of_a_row_outside_a_pair_means_nothing():
    assert [len(batch) for batch in pack([row(atom=0), row(atom=0)], 1)] == [1, 1]
    assert [len(batch) for batch in pack([row(atom=0, side=1), row(atom=0, side=-1)], 1)] == [2]


def test_equal_rows_are_computed_once():
    a, b = (Row(prompt_ids=(1, 2), completion_ids=c, mask=(True,) * len(c)) for c in ((3, 4), (5,)))
    again = Row(prompt_ids=(1, 2), completion_ids=(3, 4), mask=(True, True), atom=7, side=-1)
    other_mask = Row(prompt_ids=(1, 2), completion_ids=(3, 4), mask=(False, True))
    kept, index = distinct_rows([a, b, again, other_mask])
    assert kept == [a, b, other_mask]
    assert index == [0, 1, 0, 2]


def test_rows_that_a_teacher_sees_under_different_prompts_are_not_equal():
    plain, told, other = (
        Row(prompt_ids=(1,), completion_ids=(3,), mask=(True,), teacher_prompt_ids=seen)
        for seen in (None, (1, 2), (1, 4))
    )
    kept, index = distinct_rows([plain, told, other, replace(told)])
    assert kept == [plain, told, other]
    assert index == [0, 1, 2, 1]


def test_rows_with_observations_are_never_merged():
    rows = [Row(prompt_ids=(), completion_ids=(1,), mask=(True,), observations=torch.ones(1, 2)) for _ in range(2)]
    assert distinct_rows(rows)[1] == [0, 1]


@pytest.mark.parametrize("budget", [1, 10_000])
def test_outputs_come_back_in_the_order_given(budget):
    rows = [replace(r, mask=(*r.mask[:-1], False)) for r in random_rows({3: 3, 1: 2})]
    rows = [*rows, rows[1], replace(rows[0])]
    seen = []

    def compute(distinct):
        seen.extend(distinct)
        return torch.cat([torch.tensor(row.completion_ids[:-1], dtype=torch.float64) for row in distinct])

    found = row_outputs(rows, compute, budget)
    assert [o.tolist() for o in found] == [[*map(float, row.completion_ids[:-1]), 0.0] for row in rows]
    assert len(seen) == (5 if budget > 1 else len(rows))


def test_prompts_count_for_every_row_where_they_are_not_shared():
    rows = [Row(prompt_ids=(1, 2, 3), completion_ids=(i,), mask=(True,)) for i in range(4)]
    assert positions(rows, shared=True) == 3 + 4
    assert positions(rows, shared=False) == 4 * 3 + 4
    assert [len(batch) for batch in pack(rows, 8, shared=False)] == [2, 2]


def test_a_teachers_longer_prompts_count():
    rows = random_rows({3: 8})
    for row in rows:
        row.teacher_prompt_ids = (1,) * 1000
    assert positions(rows) >= 1000
    apart = [replace(row, teacher_prompt_ids=(i,) * 1000) for i, row in enumerate(rows)]
    assert all(len(micro) <= 2 for micro in pack(apart, 2048))
    assert len(pack(random_rows({3: 8}), 2048)) == 1


def test_outputs_of_several_heads():
    rows = random_rows({3: 2, 5: 1}, masked=True)
    rows = [*rows, replace(rows[0])]

    def compute(some):
        return torch.tensor(
            [[i, i + 0.5] for row in some for i, m in zip(row.completion_ids, row.mask, strict=True) if m]
        )

    found = row_outputs(rows, compute, token_budget=12)
    for row, values in zip(rows, found, strict=True):
        wanted = [[i, i + 0.5] if m else [0.0, 0.0] for i, m in zip(row.completion_ids, row.mask, strict=True)]
        assert values.tolist() == wanted
