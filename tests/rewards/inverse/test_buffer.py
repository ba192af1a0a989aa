"""Episodes laid end to end: ends and time limits apart, discounted visits, draws."""

from __future__ import annotations

import math

import pytest
import torch
from walks import walk

from prefrl.errors import RewardError
from prefrl.rewards.inverse.buffer import (
    Buffer,
    episode_sums,
    episodes_of,
    fragments_of,
    joined,
    minibatches,
    occupancy,
    transitions_of,
)
from prefrl.types import StopReason

ENDED = walk([[0.0], [1.0], [2.0]], [1, 0], stop=StopReason.ENVIRONMENT, logps=[-0.1, -0.2])
CUT = walk([[5.0], [6.0], [7.0], [8.0]], [0, 1, 1], logps=[-1.0, -2.0, -3.0])


def test_a_time_limit_is_no_end():
    found = transitions_of([ENDED, CUT], 2)
    assert found.terminated.tolist() == [0, 1, 0, 0, 0]
    assert found.state.squeeze(-1).tolist() == [0, 1, 5, 6, 7]
    assert found.next_state.squeeze(-1).tolist() == [1, 2, 6, 7, 8]
    assert found.action.tolist() == [[0, 1], [1, 0], [1, 0], [0, 1], [0, 1]]
    assert found.log_ratios.tolist() == pytest.approx([-0.1, -0.2, -1.0, -2.0, -3.0])
    assert found.time.tolist() == [0, 1, 0, 1, 2]
    assert found.episode.tolist() == [0, 0, 1, 1, 1]


def test_only_what_the_policy_chose():
    masked = walk([[0.0], [1.0], [2.0]], [1, 0], mask=(False, True))
    assert transitions_of([masked], 2).state.tolist() == [[1.0]]


def test_continuous_actions_as_they_are():
    found = transitions_of([walk([[0.0], [1.0]], [[0.5, -2.0]])], 2)
    assert found.action.tolist() == [[0.5, -2.0]]


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        (walk([[0.0], [1.0]], [2]), "action 2"),
        (walk([[0.0], [1.0]], [[0.5]]), "1 numbers"),
        (walk([[0.0]], [1]), "1 observations for 1 actions"),
    ],
)
def test_what_does_not_fit_is_refused(rollout, said):
    with pytest.raises(RewardError, match=said):
        transitions_of([rollout], 2)


def test_discounted_visits_do_not_sum_to_one():
    """Over the H + 1 = 4 states of an episode: (1 - .9^4) / (1 - .9) = 3.439, not 1."""
    long = transitions_of([walk([[float(i)] for i in range(5)], [0] * 4, name=str(i)) for i in range(3)], 2)
    assert float(occupancy(long, 0.9).sum()) == pytest.approx(3.439, abs=1e-12)
    assert float(occupancy(long, 1.0).sum()) == pytest.approx(4.0)


def test_episode_sums_discount_from_each_start():
    found = episode_sums(torch.tensor([1.0, 2.0, 1.0, 2.0, 4.0]), transitions_of([ENDED, CUT], 2), 0.5)
    assert found.tolist() == [2.0, 3.0]


def test_episodes_by_number_come_whole_and_anew_numbered():
    both = transitions_of([ENDED, CUT], 2)
    found = episodes_of(both, torch.tensor([1, 0, 1]))
    assert found.state.squeeze(-1).tolist() == [5, 6, 7, 0, 1, 5, 6, 7]
    assert found.episode.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


def test_the_oldest_round_leaves():
    buffer = Buffer(2)
    for number in range(3):
        buffer.add(transitions_of([walk([[float(number)]] * 5, [0] * 4)], 2))
    assert [float(one.state[0]) for one in buffer.rounds] == [1.0, 2.0]
    mixed = buffer.mixed(0.5, torch.Generator().manual_seed(0))
    assert sorted(mixed.state.squeeze(-1).tolist()) == [1.0, 1.0, 2.0, 2.0]
    assert mixed.episodes == 2
    assert torch.equal(buffer.mixed(0.0, torch.Generator()).state, buffer.rounds[-1].state)


def test_joined_numbers_episodes_on():
    both = transitions_of([ENDED, CUT], 2)
    assert joined([both, both]).episode.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(("batch", "size"), [(4, 4), (0, 10), (25, 10)])
def test_minibatches_pass_over_everything(batch, size):
    drawn = list(minibatches(10, batch, 5, torch.Generator().manual_seed(0)))
    assert [len(places) for places in drawn] == [size] * 5
    counts = torch.cat(drawn).bincount(minlength=10)
    assert int(counts.max()) - int(counts.min()) <= 1
    assert int(counts.sum()) == 5 * size


def test_round_trip_of_a_buffer():
    buffer, other = Buffer(3), Buffer(3)
    buffer.add(transitions_of([ENDED], 2))
    other.load_state_dict(buffer.state_dict())
    assert torch.equal(other.rounds[0].log_ratios, buffer.rounds[0].log_ratios)
    assert math.isclose(float(other.rounds[0].terminated.sum()), 1.0)


def test_episodes_in_any_order_and_more_than_once():
    found = episodes_of(transitions_of([ENDED, CUT], 2), torch.tensor([1, 0, 1]))
    assert found.state.squeeze(-1).tolist() == [5, 6, 7, 0, 1, 5, 6, 7]
    assert found.episode.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


def test_fragments_start_at_time_0_and_are_never_cut_off():
    """The last step of a time limit's three is left out; that of an end is a fragment, however short."""
    ended = walk([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0], stop=StopReason.ENVIRONMENT)
    found = fragments_of(transitions_of([CUT, ended, CUT], 2), 2)
    assert found.state.squeeze(-1).tolist() == [5, 6, 0, 1, 2, 5, 6]
    assert found.episode.tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert found.time.tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert found.terminated.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_fragments_longer_than_every_episode_are_refused():
    with pytest.raises(RewardError, match=r"fragment is 4, but no episode has so many steps. Set it to 3 or fewer"):
        fragments_of(transitions_of([CUT], 2), 4)
