"""Random numbers belong to a row, not to its place in a batch."""

from __future__ import annotations

import pytest
import torch

from prefrl.rollout.sampler import occurrences, row_uniforms
from prefrl.types import Prompt


def prompts(*ids):
    return [Prompt(id=i, text="x") for i in ids]


CHANGES = [{"seed": 1}, {"prompt": Prompt(id="b", text="x")}, {"occurrence": 1}, {"sample": 1}]


@pytest.mark.parametrize("changed", CHANGES)
def test_every_part_of_the_key_counts(changed):
    key = {"seed": 0, "prompt": Prompt(id="a", text="x"), "occurrence": 0, "sample": 0}
    assert torch.equal(row_uniforms(**key, count=8), row_uniforms(**key, count=8))
    assert not torch.equal(row_uniforms(**key, count=8), row_uniforms(**key | changed, count=8))


def test_a_longer_budget_begins_with_the_same_numbers():
    a = Prompt(id="a", text="x")
    assert torch.equal(row_uniforms(3, a, 0, 0, 5), row_uniforms(3, a, 0, 0, 9)[:5])


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    row_uniforms(1, Prompt(id="a", text="x"), 0, 0, 4)
    assert torch.equal(torch.rand(1), expected)


def test_the_numbers_are_uniform():
    drawn = torch.stack([row_uniforms(0, p, 0, s, 50) for p in prompts(*"abcdefgh") for s in range(50)])
    assert drawn.dtype == torch.float64
    assert 0 <= float(drawn.min()) < 1e-3 < 1 - 1e-3 < float(drawn.max()) < 1
    counts = torch.histc(drawn.float(), 10, 0, 1)
    assert float(((counts - 2000) ** 2 / 2000).sum()) < 27.9  # chi-square, 9 degrees of freedom, p = 0.001


def test_occurrences():
    assert occurrences(prompts("a", "b", "a", "a", "b")) == [0, 0, 1, 2, 1]
    assert occurrences([]) == []
