from __future__ import annotations

import math

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.rewards import Reward, RewardSource, WeightedSum, as_source, checked_scores, error_counts
from prefrl.rewards.base import attach
from prefrl.types import Score


class Fixed(Reward):
    """Returns the scores it was given."""

    def __init__(self, *scores, name="fixed"):
        self.name = name
        self.scores = [s if isinstance(s, Score) else Score(value=s) for s in scores]

    def score(self, rollouts):
        return self.scores


class Plain:
    """A source that inherits from nothing."""

    name = "plain"

    def score(self, rollouts):
        return [Score(value=1.0)] * len(rollouts)


class Broken(Plain):
    name = "broken"

    def __init__(self, error):
        self.error = error

    def score(self, rollouts):
        raise self.error


def batch(rollout, n, **kwargs):
    return [rollout(f"text {i}", id=f"p{i}", **kwargs) for i in range(n)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Score(value=math.nan), "the value is nan, not a finite number"),
        (Score(value=math.inf), "the value is inf, not a finite number"),
        (Score(value="1"), "the value is '1', not a finite number"),
        (Score(value=1.0, steps=((0, -math.inf),)), "the step at token 0 is -inf, not a finite number"),
        (Score(steps=((3, 1.0),)), "a step is at token 3 of a completion of 3 tokens"),
        (Score(steps=((-1, 1.0),)), "a step is at token -1 of a completion of 3 tokens"),
        (Score(steps=((1, 1.0),)), "a step is at token 1, which the policy did not sample"),
        (Score(value=1.0, parts={"sim": math.nan}), "the part 'sim' is nan, not a finite number"),
        (Score(), "the score has neither a value nor steps"),
        (Score.failed("no judge"), "no judge"),
    ],
)
def test_an_unusable_score_becomes_an_error_and_never_a_zero(rollout, bad, reason):
    rollouts = batch(rollout, 3, mask=(True, False, True))
    scores = checked_scores(Fixed(0.0, bad, 1.0), rollouts)
    assert [s.error for s in scores] == [None, reason, None]
    assert math.isnan(scores[1].total) and scores[0].total == 0.0
    assert error_counts(scores) == {reason: 1}


def test_usable_scores_pass_unchanged(rollout):
    good = [Score(value=-2.5, parts={"a": 1.0}), Score(steps=((0, 0.5), (2, 0.25)))]
    assert checked_scores(Fixed(*good), batch(rollout, 2, mask=(True, False, True))) == good


def test_too_many_errors_stop_with_source_counts_reason_and_prompt(rollout):
    source = Fixed(*[1.0] * 17, *[Score.failed("boom")] * 3)
    with pytest.raises(RewardError) as caught:
        checked_scores(source, batch(rollout, 20))
    assert str(caught.value) == (
        "reward 'fixed' failed on 3 of 20 rollouts (15%; 10% allowed). First at prompt 'p17': boom. "
        "Fix the source or its data, or allow more errors: max_error_fraction=0.15."
    )


def test_exactly_the_allowed_fraction_is_tolerated(rollout):
    source = Fixed(*[1.0] * 18, *[Score.failed("boom")] * 2)
    assert sum(not s.ok for s in checked_scores(source, batch(rollout, 20))) == 2
    with pytest.raises(RewardError, match="2 of 20"):
        checked_scores(source, batch(rollout, 20), max_error_fraction=0.09)


def test_one_failure_in_a_small_batch_is_tolerated_unless_none_are_allowed(rollout):
    source = Fixed(1.0, 1.0, 1.0, Score.failed("boom"))
    assert error_counts(checked_scores(source, batch(rollout, 4))) == {"boom": 1}
    with pytest.raises(RewardError, match="1 of 4"):
        checked_scores(source, batch(rollout, 4), max_error_fraction=0.0)


@pytest.mark.parametrize("n", [1, 4])
def test_errors_everywhere_stop_whatever_is_allowed(rollout, n):
    with pytest.raises(RewardError, match=f"{n} of {n} rollouts .*Fix the source or its data.$"):
        checked_scores(Fixed(*[Score.failed("boom")] * n), batch(rollout, n), max_error_fraction=1.0)


def test_an_exception_of_the_source_names_it_and_keeps_its_traceback(rollout):
    with pytest.raises(RewardError, match=r"'broken' failed on 2 of 2 .* prompt 'p0': KeyError: 'x'") as caught:
        checked_scores(Broken(KeyError("x")), batch(rollout, 2))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConfigError("no column 'x'")])
def test_interrupts_and_prefrl_errors_pass_unchanged(rollout, error):
    with pytest.raises(type(error)) as caught:
        checked_scores(Broken(error), batch(rollout, 2))
    assert caught.value is error


def test_the_number_and_type_of_scores_are_checked(rollout):
    with pytest.raises(RewardError, match="'fixed' returned 2 scores for 3 rollouts"):
        checked_scores(Fixed(1.0, 1.0), batch(rollout, 3))

    class Numbers(Plain):
        def score(self, rollouts):
            return [1.0] * len(rollouts)

    with pytest.raises(RewardError, match=r"'plain' returned 1.0 \(float\) for a rollout"):
        checked_scores(Numbers(), batch(rollout, 3))


def test_no_rollouts_means_no_call():
    assert checked_scores(Broken(ValueError("called")), []) == []


def test_error_counts_put_the_most_frequent_first():
    scores = [Score.failed("a"), Score.failed("b"), Score(value=1.0), Score.failed("b")]
    assert list(error_counts(scores).items()) == [("b", 2), ("a", 1)]


def test_as_source_takes_sources_and_functions():
    plain = Plain()
    assert as_source(plain) is plain and isinstance(plain, RewardSource)
    assert as_source(lambda text: 1.0).name.startswith("lambda_")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Plain, r"got the class Plain; .*Plain\(\.\.\.\)"),
        (3, r"got 3 \(int\) as a reward"),
        ("numeric", r"got 'numeric' \(str\).*rewards\.build"),
    ],
)
def test_as_source_refuses_what_is_neither(wrong, message):
    with pytest.raises(RewardError, match=message):
        as_source(wrong)


def test_operators_weigh_and_add(rollout):
    a, b = Fixed(1.0, name="a"), Fixed(10.0, name="b")
    assert (0.7 * a + 0.3 * b).score(batch(rollout, 1))[0].value == pytest.approx(3.7)
    assert (2 * (a + b) - 0.5 * a).score(batch(rollout, 1))[0].value == pytest.approx(21.5)
    assert (-a).score(batch(rollout, 1))[0].value == -1.0
    assert sum([a, b]).score(batch(rollout, 1))[0].value == 11.0
    assert (a * 0.5).terms == [(a, 0.5)]


def test_operators_take_functions_on_both_sides(rollout):
    a = Fixed(1.0, name="a")
    for total in (a + (lambda text: 2.0), (lambda text: 2.0) + a):
        assert total.score(batch(rollout, 1))[0].value == 3.0
    assert (a - (lambda text: 2.0)).score(batch(rollout, 1))[0].value == -1.0


@pytest.mark.parametrize("make", [lambda a: a + 1.0, lambda a: 1.0 + a, lambda a: a - 1.0, lambda a: a * a])
def test_operators_refuse_constants_and_products(make):
    with pytest.raises(TypeError):
        make(Fixed(1.0))


def test_sums_stay_flat():
    a, b, c = (Fixed(1.0, name=name) for name in "abc")
    total = 2.0 * (a + 0.5 * b) + c
    assert isinstance(total, WeightedSum)
    assert total.terms == [(a, 2.0), (b, 1.0), (c, 1.0)]
    assert total.name == "2*a + 1*b + 1*c"


class Learner(Plain):
    """A co-trained source with state."""

    def __init__(self, name):
        self.name, self.steps, self.closed = name, 0, False

    def update(self, rollouts, scores=None, demonstrations=None):
        self.steps += len(rollouts) + len(demonstrations)
        return {"loss": 0.5}

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]

    def close(self):
        self.closed = True


def test_update_state_and_close_reach_the_children(rollout):
    first, second = Learner("gail"), Learner("gail")
    total = as_source(Fixed(1.0)) + 0.5 * (WeightedSum([(first, 1.0)]) + second)
    assert total.update(batch(rollout, 2), demonstrations=["d"]) == {"gail/loss": 0.5, "gail_2/loss": 0.5}
    state = total.state_dict()
    assert state == {"gail": {"steps": 3}, "gail_2": {"steps": 3}}
    first.steps = second.steps = 0
    total.load_state_dict(state)
    assert (first.steps, second.steps) == (3, 3)
    total.close()
    assert first.closed and second.closed


def test_the_state_of_another_reward_is_refused():
    with pytest.raises(RewardError, match=r"a part 'gail', which reward '1\*fixed' does not have"):
        (1.0 * Fixed(1.0)).load_state_dict({"gail": {}})


def test_every_part_is_told_the_engine_and_those_that_do_not_want_to_know_are_left_alone():
    class Attached(Fixed):
        def attach(self, engine):
            self.engine = engine

    one, other = Attached(1.0, name="one"), Attached(2.0, name="other")
    attach((one + 0.5 * other.clip(0, 1)) + Plain(), "the engine")
    assert (one.engine, other.engine) == ("the engine", "the engine")
