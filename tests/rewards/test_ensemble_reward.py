"""Several opinions made one: by hand, for sources of any kind."""

from __future__ import annotations

import math

import pytest

from prefrl import rewards
from prefrl.errors import ConfigError
from prefrl.rewards.ensemble_reward import combined
from prefrl.types import Score


class Says:
    """A source that says the same of every rollout."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def score(self, rollouts):
        return [self.value if isinstance(self.value, Score) else Score(value=self.value)] * len(rollouts)


def one(source, rollout):
    return source.score([rollout()])[0]


def members(*values):
    return [Says("rm", value) for value in values]


def test_combined_by_hand():
    values = (1.0, 2.0, 6.0)  # mean 3, deviations -2, -1, 3: std = sqrt(14 / 3)
    assert combined(values, "mean") == 3.0
    assert combined(values, "min") == 1.0
    assert combined(values, "lcb", 0.5) == pytest.approx(3.0 - 0.5 * math.sqrt(14 / 3))
    assert combined(values, "lcb", 0.0) == 3.0


def test_sources_as_one(rollout):
    found = one(rewards.ensemble(members(1.0, 2.0, 6.0), combine="lcb", k=1.0), rollout)
    std = math.sqrt(14 / 3)
    assert found.value == pytest.approx(3.0 - std)
    assert found.parts == pytest.approx({"mean": 3.0, "std": std, "min": 1.0})


def test_a_member_that_fails_fails_the_rollout(rollout):
    found = one(rewards.ensemble([Says("a", 1.0), Says("b", Score.failed("down"))]), rollout)
    assert found.error == "member 'b': down"
    assert one(rewards.ensemble(members(1.0, math.nan)), rollout).error.startswith("member 'rm_2': the value is nan")


def test_from_settings(rollout):
    column = {"kind": "length_band", "low": 1, "high": 3, "unit": "characters"}
    source = rewards.build({"kind": "ensemble", "sources": [column, {**column, "low": 2}], "combine": "min"})
    assert one(source, rollout).parts.keys() == {"mean", "std", "min"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"combine": "minimum"}, "combine is 'minimum'; valid: mean, min, lcb.* Did you mean 'min'"),
        ({"k": -1.0}, "k is -1"),
        ({"k": math.nan}, "k is nan"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ConfigError, match=message):
        rewards.ensemble(members(1.0, 2.0), **options)


def test_one_is_no_ensemble():
    with pytest.raises(ConfigError, match="an ensemble of 1 rewards; expected at least 2"):
        rewards.ensemble(members(1.0))
