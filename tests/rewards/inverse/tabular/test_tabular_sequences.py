"""Adversarial IRL of 81 sequences for each of two prompts: the log-ratio in the discriminator recovers the reward."""

from __future__ import annotations

import numpy as np
import pytest

from prefrl.rewards.inverse.tabular import sequences

BETA = 0.5
WORLD = sequences.all_sequences(3, 4, 2, seed=0)
WEIGHTS = np.random.default_rng(1).normal(size=12)
RAW = WORLD.features @ WEIGHTS
REWARD = 0.696 * RAW / RAW.std()
EXPERT, PARTITION = sequences.optimum(WORLD.reference, REWARD, BETA)


def test_all_sequences_are_there_once_with_their_features():
    assert WORLD.tokens.shape == (81, 4) and len({tuple(row) for row in WORLD.tokens.tolist()}) == 81
    assert WORLD.features.shape == (81, 12)
    assert WORLD.tokens[5].tolist() == [0, 0, 1, 2]
    assert WORLD.features[5].tolist() == [2, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0]  # tokens; pairs 00, 01 and 12
    assert np.exp(WORLD.reference).sum(-1) == pytest.approx([1.0, 1.0], abs=1e-12)
    assert np.abs(WORLD.reference[0] - WORLD.reference[1]).max() > 0.5


def test_the_optimum_is_the_best_of_reward_less_divergence():
    def worth(logs: np.ndarray) -> np.ndarray:
        return (np.exp(logs) * (REWARD - BETA * (logs - WORLD.reference))).sum(-1)

    assert worth(EXPERT) == pytest.approx(BETA * PARTITION, abs=1e-12)
    assert (worth(WORLD.reference) < worth(EXPERT) - 0.1).all()


def test_the_log_ratio_recovers_reward_policy_and_partition():
    found = sequences.fit(WORLD, EXPERT, BETA)
    assert found.divergence[0] > 0.1 and found.divergence[-1] < 1e-10
    assert np.ptp(found.reward - REWARD) < 1e-5
    assert found.constants[0] - found.constants[1] == pytest.approx(PARTITION[0] - PARTITION[1], abs=1e-5)
    assert found.reward.std() == pytest.approx(0.696, abs=1e-5)


def test_a_plain_discriminator_imitates_as_well_and_recovers_nothing():
    found = sequences.fit(WORLD, EXPERT, BETA, plain=True)
    assert found.divergence[-1] < 1e-10
    assert found.reward.std() < 1e-3
    assert found.constants.tolist() == [0.0, 0.0]


def test_another_beta_is_another_unit_of_reward():
    found = sequences.fit(WORLD, EXPERT, 2 * BETA)
    assert found.divergence[-1] < 1e-10
    assert np.ptp(found.reward - 2 * REWARD) < 1e-5
