from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from tiny import rollout as tiny_rollout

from prefrl import rewards
from prefrl.rewards import checked_scores

MASK = (True, True, False, True, False, False, True)
TURNS = ((0, 2), (3, 4), (6, 7))


def episode(info, **more):
    return replace(tiny_rollout(tuple(range(7)), mask=MASK), turns=TURNS, info=info, **more)


def scored(key, info, **more):
    (score,) = rewards.environment(key).score([episode(info, **more)])
    return score


@pytest.mark.parametrize(("reported", "value"), [(1.0, 1.0), (3, 3.0), (True, 1.0), (0, 0.0)])
def test_a_number_is_the_value(reported, value):
    score = scored("success", {"success": reported})
    assert (score.value, score.steps, score.parts) == (value, (), {"success": value})


def test_a_list_is_paid_at_each_turns_last_sampled_token():
    score = scored("rewards", {"rewards": [0.5, 0, -1.0]})
    assert score.value is None
    assert score.steps == ((1, 0.5), (3, 0.0), (6, -1.0))
    assert score.parts == {"rewards": -0.5}


def test_the_turns_of_a_control_policy_are_its_actions():
    one = replace(tiny_rollout((4, 2, 7)), observations=torch.zeros(4, 2), info={"rewards": (1.0, 2.0, 3.0)})
    assert rewards.environment("rewards").score([one])[0].steps == ((0, 1.0), (1, 2.0), (2, 3.0))


def test_no_turns_are_one_turn():
    one = replace(tiny_rollout((4, 2, 7)), info={"rewards": [2.0]})
    assert rewards.environment("rewards").score([one])[0].steps == ((2, 2.0),)


@pytest.mark.parametrize(
    ("key", "info", "says"),
    [
        ("succes", {"success": 1.0}, r"reported no 'succes'; it reported success\. Did you mean 'success'\?"),
        ("success", {}, r"reported no 'success'; it reported nothing"),
        ("success", {"success": 1.0, "error": "environment: OSError: gone"}, "environment: OSError: gone"),
        ("success", {"success": "yes"}, r"reported success='yes'; expected a number, or one for every turn"),
        ("success", {"success": [1.0, None, 2.0]}, "expected a number, or one for every turn"),
        ("rewards", {"rewards": [1.0, 2.0]}, "reported 2 'rewards' for 3 turns"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_no_0(key, info, says):
    score = scored(key, info)
    assert not score.ok
    assert score.value is None
    assert re.search(says, score.error)


@pytest.mark.parametrize("reported", [float("nan"), [0.0, float("inf"), 0.0]])
def test_what_is_not_finite_fails_when_checked(reported):
    good = episode({"success": 1.0})
    first, second = checked_scores(rewards.environment(), [episode({"success": reported}), good])
    assert not first.ok
    assert second.value == 1.0


def test_by_settings():
    source = rewards.build([{"kind": "environment", "key": "won"}])
    assert source.score([episode({"won": 1.0})])[0].value == 1.0
    assert source.name == "environment"
