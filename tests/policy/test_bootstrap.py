"""Counts that belong to what is judged."""

from __future__ import annotations

from dataclasses import replace

import torch

from prefrl.policy.bootstrap import bootstrap_counts
from prefrl.types import Row


def row(*ids, **more):
    return Row(prompt_ids=(1,), completion_ids=ids, mask=(*(False,) * (len(ids) - 1), True), **more)


PAIRS = [(row(i, 2), row(i, 3, 4)) for i in range(2000)]


def test_counts_are_poisson():
    counts = bootstrap_counts(PAIRS, 3, seed=0)
    assert counts.shape == (2000, 3)
    shares = [(counts == n).float().mean().item() for n in range(4)]
    for share, wanted in zip(shares, (0.3679, 0.3679, 0.1839, 0.0613), strict=True):
        assert abs(share - wanted) < 0.02  # four standard errors of 6000 draws
    assert abs(float(counts.var()) - 1.0) < 0.08
    assert abs(float(torch.corrcoef(counts.T)[0, 1])) < 0.08


def test_counts_depend_on_the_content_alone():
    counts = bootstrap_counts(PAIRS[:50], 4, seed=0)
    assert torch.equal(bootstrap_counts(PAIRS[:50][::-1], 4, seed=0), counts.flip(0))
    assert torch.equal(bootstrap_counts([pair[::-1] for pair in PAIRS[:50]], 4, seed=0), counts)
    assert torch.equal(bootstrap_counts(PAIRS[20:50], 2, seed=0), counts[20:, :2])
    renumbered = [tuple(replace(r, atom=9, weight=0.1) for r in pair) for pair in PAIRS[:50]]
    assert torch.equal(bootstrap_counts(renumbered, 4, seed=0), counts)


def test_counts_differ_by_seed_and_by_annotator():
    counts = bootstrap_counts(PAIRS[:50], 4, seed=0)
    assert not torch.equal(bootstrap_counts(PAIRS[:50], 4, seed=1), counts)
    others = [tuple(replace(r, annotator=3) for r in pair) for pair in PAIRS[:50]]
    assert not torch.equal(bootstrap_counts(others, 4, seed=0), counts)


def test_feature_vectors_are_told_apart():
    rows = [
        (Row(prompt_ids=(), completion_ids=(0,), mask=(True,), observations=torch.ones(1, 2) * i),) for i in range(50)
    ]
    counts = bootstrap_counts(rows, 1, seed=0)
    assert len(counts.unique()) > 2
