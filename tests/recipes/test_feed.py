"""Where prompts come from: passes, retirement, stages, and what a step that replaces dull groups is given."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from tiny import rollout

from prefrl.cli import main
from prefrl.config import CurriculumConfig
from prefrl.errors import ConfigError, DataError, RunError
from prefrl.policy.algorithms import resolve
from prefrl.policy.optimizer import PolicyOptimizer
from prefrl.recipes.common import batches
from prefrl.recipes.feed import Feed, Watched
from prefrl.types import Prompt, Score

KINDS = ("uniform", "retire", "staged")


def prompts(count, **columns):
    """p0, p1, ...; a column is a list with a value for each."""
    return [
        Prompt(id=f"p{i}", text=f"question {i}", columns={name: values[i] for name, values in columns.items()})
        for i in range(count)
    ]


def feed_of(count, size=2, seed=0, given=None, **config):
    return Feed(given or prompts(count), size, seed, CurriculumConfig(**config))


def ids(taken):
    return [p.id for p in taken]


def tell(feed, outcomes):
    """Record a visit of every prompt with these rewards; None could not be scored."""
    rollouts = [rollout(group=name) for name, rewards in outcomes.items() for _ in rewards]
    rewards = [reward for rewards in outcomes.values() for reward in rewards]
    feed.record(rollouts, [Score.failed("no answer") if r is None else Score(value=r) for r in rewards])


def step(feed, n, reward):
    """Take and record a step in which every prompt gets one completion; the ids."""
    taken = ids(feed.take(n))
    tell(feed, {name: [reward(name)] for name in taken})
    return taken


@pytest.mark.parametrize(("count", "size"), [(5, 2), (7, 7), (3, 7), (10, 4)])
def test_uniform_keeps_the_order_of_batches(count, size):
    feed, expected = feed_of(count, size, seed=3), batches(prompts(count), size, seed=3)
    for _ in range(12):
        taken = feed.take(size)
        assert taken == next(expected)
        tell(feed, {p.id: [1.0, 0.0] for p in taken})


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind):
    def drawn(seed):
        feed = feed_of(12, 3, seed, kind=kind, window=1)
        return [step(feed, 3, lambda name: float(name in ("p1", "p5", "p7"))) for _ in range(30)]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_order_goes_on_as_if_never_stopped(kind):
    def chance(name):
        return float(random.Random(f"{name}").random() < 0.5)

    feed, other = (feed_of(12, 3, seed, kind=kind, window=1, revisit=0.3, advance_at=0.2) for seed in (0, 1))
    for _ in range(7):
        step(feed, 3, chance)
    feed.take(3)
    other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
    assert [step(feed, 3, chance) for _ in range(20)] == [step(other, 3, chance) for _ in range(20)]
    assert feed.metrics() == other.metrics()


def test_a_saved_order_of_other_prompts_is_refused():
    with pytest.raises(RunError, match="other training prompts"):
        feed_of(4).load_state_dict(feed_of(5).state_dict())
    with pytest.raises(RunError, match=r"curriculum\.kind"):
        feed_of(4).load_state_dict(feed_of(4, kind="retire").state_dict())


def test_further_prompts_of_a_step_do_not_repeat_while_others_are_left():
    feed = feed_of(6)
    first = ids(feed.take(4))
    further = ids(feed.take(2))
    assert sorted(first + further) == [f"p{i}" for i in range(6)]
    assert len(feed.take(3)) == 3  # all were had: they come again rather than none
    tell(feed, {"p0": [1.0]})
    assert Counter(ids(feed.take(3))).most_common(1)[0][1] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_they_never_do_whatever_is_taken(kind):
    for seed in range(400):
        rng = random.Random(seed)
        size = rng.randint(2, 9)
        feed = feed_of(size, 1, seed, kind=kind, window=1, revisit=0.3, stages=3, advance_at=0.3)
        for _ in range(12):
            had = set(ids(feed.take(rng.randint(1, size))))
            n, others = rng.randint(1, size), int(feed.metrics()["feed/active"])
            fresh = set(ids(feed.take(n))) - had
            assert len(fresh) >= min(n, others - len(had)), seed
            tell(feed, {name: [float(rng.random() < 0.4)] for name in had | fresh})


def test_the_last_prompt_of_a_pass_comes_before_any_repeat():
    feed = feed_of(5)
    had = ids(feed.take(2)) + ids(feed.take(2))
    left = {f"p{i}" for i in range(5)} - set(had)
    taken = ids(feed.take(3))
    assert taken[0] == left.pop()  # the one that is left, then some again
    assert len(taken) == 3


def test_solved_prompts_retire_and_are_still_looked_at_now_and_then():
    feed = feed_of(20, 5, kind="retire", window=2, revisit=0.1)
    solved = {f"p{i}" for i in range(11)}
    passes = [step(feed, 5, lambda name: float(name in solved)) for _ in range(8)]
    assert Counter(name for taken in passes for name in taken) == dict.fromkeys((f"p{i}" for i in range(20)), 2)
    assert feed.metrics()["feed/retired"] == 11
    assert feed.metrics()["feed/active"] == 9
    later = [name for _ in range(40) for name in step(feed, 5, lambda name: float(name in solved))]
    again = Counter(name for name in later if name in solved)
    assert sum(again.values()) == pytest.approx(0.1 * len(later), abs=1)  # the share asked for
    assert max(again.values()) - min(again.get(name, 0) for name in solved) <= 1  # each in turn
    assert feed.metrics()["feed/returned"] == 0


def test_a_retired_prompt_that_fails_comes_back():
    feed = feed_of(4, 4, kind="retire", window=2, revisit=0.5)
    for _ in range(2):
        step(feed, 4, lambda name: float(name == "p2"))
    assert feed.metrics()["feed/retired"] == 1
    seen = [step(feed, 4, lambda name: 0.0) for _ in range(4)]
    assert "p2" in {name for taken in seen for name in taken}
    assert (feed.metrics()["feed/retired"], feed.metrics()["feed/returned"], feed.metrics()["feed/active"]) == (0, 1, 4)


def test_success_below_the_rate_or_over_too_few_visits_does_not_retire():
    feed = feed_of(3, kind="retire", window=2, retire_at=0.75)
    tell(feed, {"p0": [1.0, 1.0], "p1": [1.0, 0.0], "p2": [1.0, None]})
    assert feed.metrics()["feed/retired"] == 0  # one visit each
    tell(feed, {"p0": [1.0, 0.0], "p1": [1.0, 0.0], "p2": [None, None]})
    # p0: (1 + 1/2) / 2 = 3/4; p1: 1/2; p2 was visited twice but could be scored once
    assert feed.metrics()["feed/retired"] == 1
    tell(feed, {"p2": [0.99, 1.0]})
    assert feed.metrics()["feed/retired"] == 2  # (1 + 1/2) / 2: 0.99 is below the reward of a success


def test_a_prompt_that_retires_leaves_the_pass_that_has_begun():
    feed = feed_of(2, kind="retire", window=1, revisit=0.0)
    taken = ids(feed.take(3))  # a pass, and one of the next
    to_come = ({"p0", "p1"} - {taken[2]}).pop()
    tell(feed, {to_come: [1.0], taken[2]: [0.0]})
    assert ids(feed.take(2)) == [taken[2]] * 2


def test_with_everything_solved_everything_is_looked_at_again():
    feed = feed_of(4, kind="retire", window=1, revisit=0.0)
    step(feed, 4, lambda name: 1.0)
    assert (feed.metrics()["feed/active"], feed.metrics()["feed/retired"]) == (4, 4)
    assert sorted(step(feed, 4, lambda name: float(name != "p3"))) == ["p0", "p1", "p2", "p3"]
    assert (feed.metrics()["feed/active"], feed.metrics()["feed/returned"]) == (1, 1)
    assert ids(feed.take(3)) == ["p3"] * 3


def test_stages_add_harder_prompts_and_keep_the_easy_ones():
    given = prompts(8, level=[3, 1, 4, 1, 5, 9, 2, 6])
    feed = feed_of(8, 2, given=given, kind="staged", stages=4, advance_at=0.5, difficulty="level")
    stages = [{"p1", "p3"}, {"p1", "p3", "p6", "p0"}, {"p1", "p3", "p6", "p0", "p2", "p4"}, {f"p{i}" for i in range(8)}]
    for number, members in enumerate(stages, start=1):
        assert feed.metrics()["feed/stage"] == number
        drawn = {name for _ in range(len(members) // 2) for name in step(feed, 2, lambda name: 0.0)}
        assert drawn == members  # nobody else, and the old ones too
        tell(feed, {name: [1.0] for name in members})  # (0 + 1) / 2 over the last two visits
        assert feed.metrics()["feed/active"] == len(stages[min(number, 3)])
    step(feed, 8, lambda name: 1.0)
    assert feed.metrics()["feed/stage"] == 4


def test_a_stage_lasts_a_pass_and_until_success():
    feed = feed_of(4, 1, given=prompts(4, level=range(4)), kind="staged", stages=2, advance_at=0.7, difficulty="level")
    tell(feed, {"p0": [1.0]})
    assert feed.metrics()["feed/stage"] == 1  # p1 was not seen yet
    tell(feed, {"p1": [0.0]})
    assert feed.metrics()["feed/stage"] == 1  # success 1/2
    tell(feed, {"p1": [1.0]})  # 1 and (0 + 1) / 2: 3/4
    assert (feed.metrics()["feed/stage"], feed.metrics()["feed/active"]) == (2, 4)


def test_prompts_that_are_added_come_within_the_pass():
    feed = feed_of(6, 1, given=prompts(6, level=range(6)), kind="staged", stages=2, advance_at=0.5, difficulty="level")
    first = ids(feed.take(1))
    tell(feed, {f"p{i}": [1.0] for i in range(3)})
    left = ids(feed.take(5))
    assert sorted(first + left) == [f"p{i}" for i in range(6)]


def test_without_a_column_difficulty_is_measured_in_a_first_pass():
    rates = {"p0": 0.0, "p1": 1.0, "p2": 0.25, "p3": 0.75}
    feed = feed_of(4, 2, kind="staged", stages=2, advance_at=0.9)
    assert feed.metrics()["feed/stage"] == 0
    for _ in range(2):
        tell(feed, {name: [float(k < 4 * rates[name]) for k in range(4)] for name in ids(feed.take(2))})
    assert (feed.metrics()["feed/stage"], feed.metrics()["feed/active"]) == (1, 2)
    assert sorted(ids(feed.take(2))) == ["p1", "p3"]


def test_what_cannot_be_scored_is_the_hardest_and_holds_no_stage_up():
    feed = feed_of(3, 1, kind="staged", stages=3, advance_at=1.0)
    tell(feed, {"p0": [None], "p1": [0.0], "p2": [1.0]})
    assert ids(feed.take(1)) == ["p2"]
    tell(feed, {"p2": [1.0]})
    assert feed.metrics()["feed/active"] == 2
    tell(feed, {"p1": [None], "p2": [1.0]})  # p1 stands at 0 from before
    assert feed.metrics()["feed/stage"] == 2
    tell(feed, {"p1": [1.0]})
    tell(feed, {"p1": [1.0]})
    assert feed.metrics()["feed/stage"] == 3
    assert "p0" in ids(feed.take(3))


def test_a_stage_holds_a_step_at_least():
    given = prompts(8, level=range(8))
    assert feed_of(8, 5, given=given, kind="staged", stages=8, difficulty="level").metrics()["feed/active"] == 5


def test_metrics_say_where_visits_went():
    feed = feed_of(5, given=prompts(5, level=[1, 2, 3, 4, 10]), difficulty="level")
    outcomes = {"p0": [0.0], "p1": [0.0, 1.0, 0.0], "p2": [1.0, 0.0], "p3": [1.0, None]}
    tell(feed, outcomes)
    new = {"feed/visits/new": 1.0, "feed/visits/none": 0.0, "feed/visits/low": 0.0, "feed/visits/high": 0.0}
    assert feed.metrics() == {"feed/active": 5.0, **new, "feed/visits/all": 0.0, "feed/difficulty": 2.5}
    tell(feed, outcomes | {"p4": [0.0]})
    assert feed.metrics() == pytest.approx(
        {
            "feed/active": 5.0,
            "feed/visits/new": 0.2,
            "feed/visits/none": 0.2,
            "feed/visits/low": 0.2,
            "feed/visits/high": 0.2,
            "feed/visits/all": 0.2,
            "feed/difficulty": 4.0,
        }
    )


def test_difficulty_without_a_column_is_the_rate_of_failure():
    feed = feed_of(3)
    tell(feed, {"p0": [1.0, 1.0], "p1": [1.0, 0.0, None], "p2": [None]})
    assert feed.metrics()["feed/difficulty"] == 0.25
    tell(feed, {"p0": [None]})
    assert math.isnan(feed.metrics()["feed/difficulty"])


@pytest.mark.parametrize("value", [None, "hard", math.nan, True])
def test_a_difficulty_that_is_no_number_is_refused(value):
    with pytest.raises(DataError, match="column 'level'"):
        feed_of(2, given=prompts(2, level=[1, value]), kind="staged", difficulty="level")


def test_no_prompts_are_refused():
    with pytest.raises(DataError, match="no training prompts"):
        Feed([], 2, 0, CurriculumConfig())


@pytest.mark.parametrize("wrong", [{"window": 0}, {"retire_at": 0.0}, {"advance_at": 1.5}, {"revisit": 1.0}])
def test_values_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CurriculumConfig(**wrong)


@dataclass
class Toy:
    """A policy of which every group has three tokens a completion; it counts the rows it learns from."""

    version: int = 0
    budget: int = 3
    learnt: list[str] = field(default_factory=list)

    def sample(self, some, n, *, seed):
        return [rollout((1, 2, 3), group=p.id) for p in some for _ in range(n)]

    def step(self, rows, objective, extras=()):
        self.version += 1
        self.learnt += [row for row in rows if bool((row.streams["rl"] != 0).any())]
        return {"loss": 0.0}

    def total(self, local):
        return local


@dataclass
class Mixed:
    """Rewards 0 and 1 in the groups of some prompts, 1 throughout in all others."""

    names: set[str]

    def score(self, rollouts):
        return [Score(value=float(i % 2 or r.prompt.id not in self.names)) for i, r in enumerate(rollouts)]

    def update(self, rollouts, scores):
        return {"told": float(len(rollouts))}


def refill(mixed_places, rounds, count=12):
    """A step of 4 prompts with groups of 2; which prompts, in the order of the feed, have mixed groups."""
    order = ids(feed_of(count, 4).take(count))
    feed, policy = feed_of(count, 4), Toy()
    reward = Watched(Mixed({order[place] for place in mixed_places}), feed)
    algorithm = resolve({"name": "dapo", "group_size": 2, "resample": rounds, "overlong": {"rule": "keep"}})
    optimizer = PolicyOptimizer(policy, reward, algorithm)
    return optimizer.step(feed.take(4), seed=0, more=feed.take), feed, policy


def test_groups_without_a_signal_are_replaced_until_the_rounds_are_over():
    # 4 prompts with 1 mixed group, then 3 with 1, 2 with 1, and 1 with none.
    result, feed, policy = refill({1, 5, 8}, rounds=3)
    assert {name: value for name, value in result.metrics.items() if name.startswith("resample/")} == pytest.approx(
        {
            "resample/rounds": 3.0,
            "resample/discarded": 0.7,  # 7 of 10 groups
            "resample/wasted_tokens": 42.0,  # 7 groups of 2 completions of 3 tokens
            "resample/filled": 0.75,
            "resample/difficulty_shift": 0.5 - 0.85,  # kept 1/2; of all, 3 groups at 1/2 and 7 at 1
        }
    )
    assert len(policy.learnt) == len(result.rollouts) == 6
    assert result.metrics["told"] == 6.0
    assert len({r.prompt.id for r in result.rollouts}) == 3
    # The feed heard of all ten groups, those that were thrown away too.
    assert len(feed.visits.rates) == 10
    assert sorted(rate for (rate,) in feed.visits.rates.values()) == [0.5] * 3 + [1.0] * 7


def test_sampling_ends_as_soon_as_the_batch_is_full():
    result, feed, _ = refill({0, 2, 3, 4, 5}, rounds=3)
    assert (result.metrics["resample/rounds"], result.metrics["resample/filled"]) == (1.0, 1.0)
    assert result.metrics["resample/wasted_tokens"] == 6.0
    assert len(feed.visits.rates) == 5


def test_replacements_are_bounded():
    result, feed, _ = refill(set(), rounds=2, count=40)
    assert (result.metrics["resample/rounds"], result.metrics["resample/filled"]) == (2.0, 0.0)
    assert len(feed.visits.rates) == 12
    assert torch.tensor([s.total for s in result.scores]).eq(1.0).all()  # there is still something to report


def test_held_out_prompts_never_enter(model, write, tmp_path, capsys):
    same = [{"prompt": f"Say {i}"} for i in range(4)]
    train, held_out = write("train.jsonl", same), write("eval.jsonl", [{"prompt": "Say 9"}, same[2]])
    flags = ("--policy.name", model, "--data.train", train, "--data.eval", held_out, "--output", str(tmp_path / "out"))
    for command in ("rl", "rejection"):
        assert main([command, *flags, "--rewards", "[{kind: length_band, low: 1, high: 9}]", "--overwrite"]) == 2
        assert "1 of 2 held-out rows have a prompt that is trained on" in capsys.readouterr().err
