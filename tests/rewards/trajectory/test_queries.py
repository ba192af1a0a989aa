from __future__ import annotations

import pytest
import torch

from prefrl.errors import ConfigError
from prefrl.rewards.trajectory.queries import disagreement, query_counts, select


@pytest.mark.parametrize("schedule", ["constant", "hyperbolic", "inverse_quadratic"])
@pytest.mark.parametrize(("total", "rounds"), [(200, 6), (7, 3), (1, 1), (1, 4), (100, 2)])
def test_the_rounds_add_up(schedule, total, rounds):
    counts = query_counts(total, rounds, schedule=schedule)
    assert len(counts) == rounds
    assert sum(counts) == total
    assert min(counts) >= 0


def test_schedules_by_hand():
    assert query_counts(200, 6, schedule="constant") == [20, 36, 36, 36, 36, 36]
    # 1, 2/3, 1/2 of 13/6: 90 * (6, 4, 3) / 13 = 41.5, 27.7, 20.8
    assert query_counts(100, 4, schedule="hyperbolic") == [10, 41, 28, 21]
    # 1, 4/5, 1/2 of 23/10: 90 * (10, 8, 5) / 23 = 39.1, 31.3, 19.6
    assert query_counts(100, 4, schedule="inverse_quadratic") == [10, 39, 31, 20]


def test_unknown_schedule():
    with pytest.raises(ConfigError, match="Did you mean 'hyperbolic'"):
        query_counts(10, 2, schedule="hyperbolik")


def test_disagreement_is_the_variance_over_members():
    big = 40.0
    gaps = torch.tensor([[big, big, 0.0], [-big, big, 0.0]], dtype=torch.float64)
    assert disagreement(gaps).tolist() == pytest.approx([0.25, 0.0, 0.0])
    assert disagreement(gaps, "gap").tolist() == [1600.0, 0.0, 0.0]
    assert disagreement(gaps, "label").tolist() == [0.25, 0.0, 0.0]
    assert disagreement(gaps, noise=0.2).tolist() == pytest.approx([0.16, 0.0, 0.0]), "(.9 - .1)^2 / 4"
    assert disagreement(gaps[:1]).tolist() == [0.0, 0.0, 0.0], "one net cannot disagree"


def test_the_most_disputed_pairs_are_asked():
    gaps = torch.tensor([[3.0, 0.1, 2.0, -4.0, 1.0], [3.1, -0.1, -2.0, 4.0, 0.9]], dtype=torch.float64)
    assert select(disagreement(gaps), 2) == [2, 3]
    assert select(disagreement(gaps), 3) == [1, 2, 3]
    assert select(disagreement(gaps), 9) == [0, 1, 2, 3, 4]


def test_a_share_is_random():
    uncertainty = torch.arange(100.0)
    found = select(uncertainty, 10, random_share=0.5, seed=0)
    assert len(found) == len(set(found)) == 10
    assert len(set(found) & set(range(95, 100))) == 5
    assert found == select(uncertainty, 10, random_share=0.5, seed=0)
    assert found != select(uncertainty, 10, random_share=0.5, seed=1)
    assert len(select(uncertainty, 10, random_share=1.0, seed=3)) == 10
