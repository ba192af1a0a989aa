from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter

import pytest

from prefrl.errors import ConfigError, RewardError
from prefrl.policy.credit import countable, has_signal
from prefrl.policy.parts import OverlongSpec
from prefrl.recipes.rejection import select
from prefrl.rewards import Match, Outcome, Tournament, checked_scores
from prefrl.rewards.normalise import sigmoid
from prefrl.rewards.tournament import as_comparer, bradley_terry_strengths, circulant
from prefrl.types import Score


class Number:
    """Scores every rollout by its text, and counts how many it was shown."""

    name = "number"

    def __init__(self):
        self.shown = 0

    def score(self, rollouts):
        self.shown += len(rollouts)
        return [Score.failed("not a number") if r.text == "?" else Score(value=float(r.text)) for r in rollouts]


class Referee:
    """Decides by a function of the two texts, and remembers the matches."""

    name = "referee"

    def __init__(self, decide):
        self.decide, self.matches = decide, []

    def compare(self, matches):
        self.matches += [(m.first.text, m.second.text) for m in matches]
        return [self.decide(m.first.text, m.second.text) for m in matches]


def larger(first, second):
    return Outcome(probability=float(float(first) > float(second)))


@pytest.fixture
def group(rollout):
    """Rollouts of one prompt by their texts."""

    def make(*texts, name="a"):
        return [rollout(str(text), id=name) for text in texts]

    return make


def values(source, rollouts):
    return [score.value for score in source.score(rollouts)]


def test_wins_are_shares_of_the_others_beaten(group):
    scores = Tournament(Referee(larger)).score(group(3, 1, 4, 2))
    assert [s.value for s in scores] == pytest.approx([2 / 3, 0, 1, 1 / 3])
    assert [dict(s.parts) for s in scores] == [{"matches": 3.0, "wins": pytest.approx(s.value)} for s in scores]


def test_groups_play_among_themselves_and_in_one_call(group):
    referee = Referee(larger)
    batch = [x for pair in zip(group(1, 2, name="a"), group(30, 20, name="b"), strict=True) for x in pair]
    assert values(Tournament(referee), batch) == [0.0, 1.0, 1.0, 0.0]
    assert sorted(referee.matches) == [("1", "2"), ("30", "20")]


def test_a_reward_source_compares_by_its_differences_and_scores_each_answer_once(group):
    source = Number()
    got = values(Tournament(source, scale=2.0), group(0, 1, 3))
    assert got == pytest.approx(
        [
            (sigmoid(-0.5) + sigmoid(-1.5)) / 2,
            (sigmoid(0.5) + sigmoid(-1.0)) / 2,
            (sigmoid(1.5) + sigmoid(1.0)) / 2,
        ]
    )
    assert source.shown == 3


def test_a_function_compares(group):
    def longer(prompt, first, second):
        if "?" in first + second:
            return None
        if "!" in first + second:
            raise ValueError("too loud")
        assert prompt == "q"
        return len(first) > len(second)

    scores = Tournament(longer).score(group("a", "aaa", "aa", "?", "!"))
    assert [s.value for s in scores[:3]] == [0.0, 1.0, 0.5]
    assert scores[3].error == "none of its 4 matches could be judged; most often: the comparer could not say"
    assert scores[4].error == "none of its 4 matches could be judged; most often: ValueError: too loud"


def test_a_match_that_fails_is_left_out_and_shifts_nobody(group):
    def decide(first, second):
        return Outcome(error="lost") if {first, second} == {"1", "4"} else larger(first, second)

    scores = Tournament(Referee(decide)).score(group(1, 2, 3, 4))
    assert [s.value for s in scores] == [0.0, 1 / 3, 2 / 3, 1.0]
    assert [s.parts["matches"] for s in scores] == [2.0, 3.0, 3.0, 2.0]
    with_error = Tournament(Number()).score(group(1, "?", 2))
    assert with_error.pop(1).error == "none of its 2 matches could be judged; most often: not a number"
    assert with_error == Tournament(Number()).score(group(1, 2))


def test_alone_or_never_judged_is_an_error_and_never_a_0(group):
    (score,) = Tournament(Referee(larger)).score(group(1))
    assert score.error.startswith("alone in its group")
    for wrong in (math.nan, 1.5, -0.1):
        scores = Tournament(Referee(lambda a, b, p=wrong: Outcome(probability=p))).score(group(1, 2))
        assert all(f"returned {wrong}; expected a probability in [0, 1]" in s.error for s in scores)
    scores = Tournament(Referee(lambda a, b: "A")).score(group(1, 2))
    assert all("returned 'A' (str); expected a probability" in s.error for s in scores)


def test_equal_answers_draw_without_being_compared(group):
    referee = Referee(larger)
    assert values(Tournament(referee), group(5, 5, 1)) == [0.75, 0.75, 0.0]
    assert len(referee.matches) == 2
    assert values(Tournament(Referee(larger)), group(5, 5)) == [0.5, 0.5]


@pytest.mark.parametrize(("n", "degree"), [(2, 1), (3, 2), (4, 1), (4, 3), (5, 2), (6, 3), (7, 4), (8, 5), (9, 8)])
def test_everybody_meets_equally_many_different_others(n, degree):
    pairs = circulant(n, degree)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == n * degree // 2
    assert set(Counter(i for pair in pairs for i in pair).values()) == {degree}


def test_an_odd_number_of_opponents_in_an_odd_group_is_raised():
    assert set(Counter(i for pair in circulant(5, 1) for i in pair).values()) == {2}


@pytest.mark.parametrize("kind", ["wins", "strength"])
@pytest.mark.parametrize("opponents", [0, 2, 3])
def test_order_and_other_groups_do_not_matter(group, kind, opponents):
    a, b = group(*range(6), name="a"), group(9, 3, 5, 7, name="b")
    source = Tournament(Number(), kind, opponents=opponents, seed=1)
    expected = dict(zip(map(id, a + b), values(source, a + b), strict=True))
    mixed = random.Random(0).sample(a + b, 10)
    assert values(source, mixed) == pytest.approx([expected[id(r)] for r in mixed], abs=1e-9)
    assert values(source, a) == pytest.approx([expected[id(r)] for r in a], abs=1e-9)


def test_the_budget_is_kept_and_the_seed_decides_who_meets(group):
    def met(seed):
        referee = Referee(larger)
        scores = Tournament(referee, opponents=2, seed=seed).score(group(*range(8)))
        assert [s.parts["matches"] for s in scores] == [2.0] * 8
        return {frozenset(match) for match in referee.matches}

    assert len(met(0)) == 8
    assert met(0) == met(0) != met(1)


def test_strengths_of_two_are_their_log_odds_as_the_prior_goes():
    for p in (0.5, 0.8, 0.05):
        strengths = bradley_terry_strengths([(3, 7, p)], prior=1e-9)
        assert strengths[3] - strengths[7] == pytest.approx(math.log(p / (1 - p)), abs=1e-6)
        assert strengths[3] + strengths[7] == pytest.approx(0.0, abs=1e-9)


def any_results():
    rng = random.Random(0)
    return [(i, j, rng.random()) for i in range(6) for j in range(i) if rng.random() < 0.7]


def chain():
    """A row of players of whom Newton's full steps go ever further away."""
    rng = random.Random(35)
    rows = ([(i, i + 1, rng.choice([0.0, 1.0, 0.01, 0.99]))] * rng.choice([1, 50]) for i in range(29))
    return [result for row in rows for result in row]


@pytest.mark.parametrize(("results", "prior"), [(any_results(), 0.1), (chain(), 1e-4)])
def test_strengths_are_where_the_gradient_is_0(results, prior):
    s = bradley_terry_strengths(results, prior=prior)
    for k in s:
        pull = sum((p - sigmoid(s[i] - s[j])) * ((i == k) - (j == k)) for i, j, p in results)
        assert pull == pytest.approx(prior * s[k], abs=1e-9)


def test_strengths_find_the_truth_and_use_who_was_beaten():
    truth = [2.0, 1.0, 0.0, -3.0]
    results = [(i, j, sigmoid(truth[i] - truth[j])) for i in range(4) for j in range(i)]
    found = bradley_terry_strengths(results, prior=1e-9)
    assert [found[i] for i in range(4)] == pytest.approx(truth, abs=1e-5)
    # 0 and 1 both win half of their matches, but 0 meets the strong ones.
    results = [(2, 3, 1.0)] * 3 + [(0, 2, 0.5)] * 2 + [(1, 3, 0.5)] * 2
    found = bradley_terry_strengths(results)
    assert found[0] > found[1]


def test_who_always_wins_has_a_finite_strength_that_the_prior_decides():
    found = bradley_terry_strengths([(0, 1, 1.0)] * 50, prior=0.1)
    # 50 sigmoid(-2 s) = 0.1 s
    assert 50 * sigmoid(-2 * found[0]) == pytest.approx(0.1 * found[0])
    strong = bradley_terry_strengths([(0, 1, 1.0)] * 1000, prior=1e-6)[0]
    assert 1000 * sigmoid(-2 * strong) == pytest.approx(1e-6 * strong, rel=1e-6)


def test_strength_as_a_score(group):
    scores = Tournament(Number(), "strength").score(group(0, 1, 2))
    assert [s.value for s in scores] == pytest.approx([-scores[2].value, 0.0, scores[2].value], abs=1e-9)
    assert scores[0].parts["wins"] == pytest.approx((sigmoid(-1) + sigmoid(-2)) / 2)


def test_the_parts_of_a_comparer_are_averaged_over_a_rollouts_matches(group):
    referee = Referee(lambda a, b: Outcome(probability=0.5, parts={"order_bias": float("3" in (a, b))}))
    scores = Tournament(referee).score(group(1, 2, 3))
    assert [s.parts["order_bias"] for s in scores] == [0.5, 0.5, 1.0]


def test_it_ranks_for_every_learner(group):
    """Advantages, pairs and rejection all read its scores as those of any source."""
    rollouts = group(3, 1, 2)
    scores = checked_scores(Tournament(Referee(larger)), rollouts)
    assert all(has_signal(countable(rollouts, scores, OverlongSpec(), budget=0)))
    distinct = [dataclasses.replace(r, completion_ids=(i, i, i)) for i, r in enumerate(rollouts)]
    assert [r.text for r in select(distinct, scores, threshold=0.5).rollouts] == ["3", "2"]
    assert [r.text for r in select(distinct, scores, threshold=None).rollouts] == ["3"]


def test_a_comparer_that_raises_fails_every_match_and_a_wrong_number_of_outcomes_stops(group):
    class Broken:
        name = "broken"

        def compare(self, matches):
            raise OSError("gone")

    scores = Tournament(Broken()).score(group(1, 2))
    assert [s.error for s in scores] == ["none of its 1 matches could be judged; most often: OSError: gone"] * 2
    Broken.compare = lambda self, matches: []
    with pytest.raises(RewardError, match="comparer 'broken' returned 0 outcomes for 1 matches"):
        Tournament(Broken()).score(group(1, 2))


def test_what_compares():
    referee = Referee(larger)
    assert as_comparer(referee) is referee
    assert as_comparer(len).name == "len"
    for wrong in (3, Referee):
        with pytest.raises(RewardError, match="to compare answers; expected an object with `name`"):
            as_comparer(wrong)
    assert Match(1, 2).first == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"score": "elo"}, "expected wins or strength"), ({"opponents": -1}, "expected 0"), ({"scale": 0}, "positive")],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Tournament(Number(), **wrong)
