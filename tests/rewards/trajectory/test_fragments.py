from __future__ import annotations

import pytest
import torch
from episodes import episode

from prefrl.errors import RewardError
from prefrl.rewards.trajectory.fragments import couples, cut, fragments, true_rewards
from prefrl.types import StopReason


def test_fragments_have_one_length_and_stay_in_their_episode():
    episodes = [episode(range(i, i + 7), name) for i, name in enumerate("ab")] + [episode([0.0] * 3, "c")]
    found = fragments(episodes, 4, 50, seed=0)
    assert found.short == 1
    assert len(found.fragments) == 50
    for piece in found.fragments:
        assert len(piece.completion_ids) == len(piece.info["rewards"]) == 4
        assert len(set(piece.observations[:, 0].tolist())) == 1, "one episode only"
        assert torch.equal(piece.observations[:, 1].diff(), torch.ones(4)), "consecutive steps"
    starts = {(piece.group, piece.info["start"]) for piece in found.fragments}
    assert starts == {(name, start) for name in "ab" for start in range(4)}


def test_places_are_drawn_evenly_and_once_before_twice():
    episodes = [episode([0.0] * 5, "a"), episode([0.0] * 9, "b")]
    found = fragments(episodes, 3, 10, seed=1).fragments
    assert len({(piece.group, piece.info["start"]) for piece in found}) == 10


def test_a_fragment_ends_as_its_episode_only_at_its_end():
    whole = episode([1.0, 2.0, 3.0], stop=StopReason.ENVIRONMENT)
    assert cut(whole, 0, 2).truncated
    assert cut(whole, 1, 2).terminated
    last = cut(whole, 1, 2)
    assert last.observations[:, 1].tolist() == [1.0, 2.0, 3.0]
    assert last.info["rewards"] == (2.0, 3.0)


def test_continuous_actions_are_cut_too():
    from dataclasses import replace

    whole = replace(episode([0.0] * 4), actions=torch.arange(4.0)[:, None])
    assert cut(whole, 1, 2).actions.tolist() == [[1.0], [2.0]]


def test_the_seed_says_all():
    episodes = [episode([0.0] * 30, "a"), episode([0.0] * 30, "b")]

    def drawn(seed):
        return [(p.group, p.info["start"]) for p in fragments(episodes, 5, 12, seed).fragments]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    pieces = fragments(episodes, 5, 12, 3).fragments
    assert [p.info["start"] for p, _ in couples(pieces, 1)] == [p.info["start"] for p, _ in couples(pieces, 1)]


@pytest.mark.parametrize("length", [4, 5])
def test_too_short_episodes_are_refused(length):
    with pytest.raises(RewardError, match=f"the longest of 3 steps; expected one of {length} or more"):
        fragments([episode([0.0] * 3)], length, 2, 0)


def test_no_steps_beyond_the_episode():
    for start, length in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(RewardError, match="of an episode of 3 steps"):
            cut(episode([0.0] * 3), start, length)


def test_true_rewards_are_never_made_up():
    from dataclasses import replace

    assert true_rewards([episode([1.0, 2.0])]).tolist() == [[1.0, 2.0]]
    with pytest.raises(RewardError, match="no rewards of its environment"):
        true_rewards([replace(episode([1.0, 2.0]), info={})])
    with pytest.raises(RewardError, match="NaN or infinity"):
        true_rewards([episode([1.0, float("nan")])])
