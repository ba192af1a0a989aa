"""Every kind against numbers worked out by hand; running normalisation is in test_compose.py."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from prefrl.errors import ConfigError
from prefrl.rewards import GroupNormalise, GroupRank, Normalise, Sigmoid, Standardise, numeric
from prefrl.rewards.normalise import frozen, sigmoid
from prefrl.types import Score


class Given:
    """Scores every rollout by its text."""

    name = "given"

    def score(self, rollouts):
        return [Score.failed("x") if r.text == "?" else Score(value=float(r.text)) for r in rollouts]


class Stepped:
    name = "stepped"

    def score(self, rollouts):
        return [Score(value=float(r.text), steps=((1, 2.0),)) for r in rollouts]


@pytest.fixture
def groups(rollout):
    """Rollouts of texts, group by group: groups(a=[1, 2], b=[3])."""

    def make(**texts):
        return [rollout(str(text), id=name) for name, found in texts.items() for text in found]

    return make


def values(source, rollouts):
    return [score.value for score in source.score(rollouts)]


def test_fixed(groups):
    source = Standardise(Stepped(), mean=1.0, std=2.0)
    (got,) = source.score(groups(a=[4]))
    assert (got.value, got.steps, got.parts) == (1.5, ((1, 1.0),), {"raw": 6.0})


def test_group_z_is_over_the_population_of_the_group(groups):
    # 1, 3: mean 2, std 1.  0, 0, 3: mean 1, std sqrt(2).
    got = values(GroupNormalise(Given()), groups(a=[1, 3], b=[0, 0, 3]))
    assert got == pytest.approx([-1.0, 1.0, -1 / math.sqrt(2), -1 / math.sqrt(2), 2 / math.sqrt(2)])


def test_group_z_of_equal_values_is_exactly_0_and_counted(groups):
    scores = GroupNormalise(Given()).score(groups(a=[0.1, 0.1, 0.1], b=[5], c=[1, 2]))
    assert [s.value for s in scores] == [0.0, 0.0, 0.0, 0.0, -1.0, 1.0]
    assert [s.parts["uniform"] for s in scores] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    (alone,) = GroupNormalise(Stepped()).score(groups(a=[1]))
    assert (alone.total, alone.steps) == (0.0, ())


def test_rank_averages_ties_and_ends_at_0_and_1(groups):
    got = values(GroupRank(Given()), groups(a=[5, -2, 5, 100], b=[7], c=[3, 3]))
    assert got == [0.5, 0.0, 0.5, 1.0, 0.5, 0.5, 0.5]


def test_sigmoid_is_centred_scaled_and_does_not_overflow(groups):
    got = values(Sigmoid(Given(), centre=1.0, scale=2.0), groups(a=[1, 3, -1e9, 1e9]))
    assert got == pytest.approx([0.5, 1 / (1 + math.exp(-1)), 0.0, 1.0])
    assert sigmoid(-2.0) == pytest.approx(1 - sigmoid(2.0))


def test_steps_are_scaled_where_that_is_linear_and_else_paid_at_the_end(groups):
    pair = groups(a=[0, 2])  # totals 2 and 4: mean 3, std 1
    first, second = GroupNormalise(Stepped()).score(pair)
    assert (first.value, first.steps, first.total) == (-3.0, ((1, 2.0),), -1.0)
    assert second.total == 1.0
    for source in (GroupRank(Stepped()), Sigmoid(Stepped(), centre=3.0)):
        scores = source.score(pair)
        assert all(s.steps == () and s.parts["raw"] in (2.0, 4.0) for s in scores)
        assert sum(s.total for s in scores) == pytest.approx(1.0)


@pytest.mark.parametrize("source", [GroupNormalise(Given()), GroupRank(Given())])
def test_an_error_shifts_nobody(groups, source):
    with_error = values(source, groups(a=[1, "?", 5, 2], b=[0, 1]))
    assert with_error.pop(1) is None
    assert with_error == values(source, groups(a=[1, 5, 2], b=[0, 1]))


@pytest.mark.parametrize(
    "source", [Standardise(Given(), 1.0, 2.0), GroupNormalise(Given()), GroupRank(Given()), Sigmoid(Given())]
)
def test_order_and_other_groups_do_not_matter(groups, source):
    rollouts = groups(a=[1, 4, 2], b=[0, 7], c=[3, 3, 3, 8])
    expected = dict(zip(map(id, rollouts), values(source, rollouts), strict=True))
    shuffled = random.Random(0).sample(rollouts, len(rollouts))
    assert values(source, shuffled) == [expected[id(r)] for r in shuffled]
    for name in "abc":
        alone = [r for r in rollouts if r.group == name]
        assert values(source, alone) == [expected[id(r)] for r in alone]


def test_groups_are_groups_and_not_prompts(rollout):
    one, other = rollout("1", id="p"), dataclasses.replace(rollout("3", id="p"), group="p#2")
    assert values(GroupNormalise(Given()), [one, other]) == [0.0, 0.0]


def test_running_statistics_stay_while_they_are_frozen(groups):
    running = Normalise(Given())
    source = 2.0 * running.clip(-10.0, 10.0)
    running.score(groups(a=[1, 3]))  # mean 2, std 1
    with frozen(source):
        assert values(source, groups(a=[7])) == [10.0]
    assert (running.count, running.mean) == (2, 2.0)
    running.score(groups(a=[5]))
    assert (running.count, running.mean) == (3, 3.0)


def test_before_anything_was_learnt_the_first_frozen_batch_lends_its_scale(groups):
    running = Normalise(Given())
    with frozen(running):
        assert values(running, groups(a=[1, 3])) == [-1.0, 1.0]
        assert values(running, groups(a=[5])) == [3.0]  # by the same scale, so that the two compare
    assert running.count == 0
    assert values(running, groups(a=[5, 9])) == [-1.0, 1.0]  # of these two alone
    with frozen(running):
        assert values(running, groups(a=[11])) == [2.0]


def test_an_error_ends_the_frost(groups):
    running = Normalise(Given())
    with pytest.raises(ZeroDivisionError), frozen(running):
        raise ZeroDivisionError
    running.score(groups(a=[1]))
    assert running.count == 1


def test_the_method_takes_a_kind():
    assert isinstance(numeric().normalised(), Normalise)
    made = numeric().normalised("sigmoid", centre=0.5)
    assert isinstance(made, Sigmoid) and (made.centre, made.scale, made.name) == (0.5, 1.0, "numeric")
    with pytest.raises(ConfigError, match=r"normalise is 'grup'; valid: fixed, .*Did you mean 'group'"):
        numeric().normalised("grup")


def test_a_spread_must_be_positive():
    for make in (lambda x: Standardise(Given(), 0.0, x), lambda x: Sigmoid(Given(), 0.0, x)):
        for wrong in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(ConfigError, match="positive"):
                make(wrong)
