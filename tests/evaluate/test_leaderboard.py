"""The Bradley-Terry leaderboard of policies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prefrl.data.comparisons import Item, Judgement, Label
from prefrl.errors import DataError
from prefrl.evaluate.leaderboard import ELO, Game, games_of, leaderboard
from prefrl.types import Completion, Prompt


def games(first: str, second: str, win: int = 0, loss: int = 0, tie: int = 0) -> list[Game]:
    results = ["win"] * win + ["loss"] * loss + ["tie"] * tie
    return [Game(first, second, result, f"{first}{second}{k}") for k, result in enumerate(results)]


def test_two_policies_by_hand() -> None:
    """Without a prior: odds of 30 wins to 10 losses are exp(g), and nu is 20 / sqrt(30 * 10)."""
    found = leaderboard(games("a", "b", win=30, loss=10, tie=20), deviation=1e4)
    a, b = found.standings
    assert (a.policy, a.wins, a.losses, a.ties) == ("a", 30, 10, 20) and (b.wins, b.losses) == (10, 30)
    assert a.score - b.score == pytest.approx(math.log(3), abs=1e-3)  # the prior of nu moves it
    assert found.tie == pytest.approx(20 / math.sqrt(300), rel=5e-3)
    assert a.score == pytest.approx(-b.score, abs=1e-12) and a.elo == pytest.approx(
        1000 + ELO * math.log(3) / 2, abs=0.1
    )
    assert a.win_rate == pytest.approx(40 / 60)
    assert a.interval is not None and 0 < a.interval[0] < a.score < a.interval[1]


def test_sides_do_not_matter() -> None:
    one = leaderboard(games("a", "b", win=7, loss=2, tie=3))
    turned = [
        Game(g.second, g.first, {"win": "loss", "loss": "win", "tie": "tie"}[g.result], g.item)
        for g in games("a", "b", win=7, loss=2, tie=3)
    ]
    assert leaderboard(turned) == one


def test_a_policy_that_always_wins_is_finite() -> None:
    found = leaderboard(games("a", "b", win=20))
    assert found.standings[0].policy == "a" and 0 < found.standings[0].score < 5
    assert found.standings[0].interval is None  # every resample is the same, which is no certainty


def test_policies_that_nothing_connects() -> None:
    played = games("a", "b", win=3, loss=1) + games("c", "d", win=1, loss=3) + games("d", "e", win=2, tie=1)
    found = leaderboard(played)
    assert found.components == 2
    groups = [(s.component, s.policy) for s in found.standings]
    assert [policy for component, policy in groups if component == groups[0][0]] == ["a", "b"]
    assert {policy for component, policy in groups if component == groups[-1][0]} == {"c", "d", "e"}
    for component in (0, 1):
        assert sum(s.score for s in found.standings if s.component == component) == pytest.approx(0.0, abs=1e-9)


def test_known_strengths_come_back() -> None:
    rng = np.random.default_rng(1)
    true, nu = {"base": -1.0, "one": -0.2, "two": 0.4, "three": 0.8}, 0.6
    names, played = list(true), []
    for k in range(3000):
        a, b = rng.choice(4, 2, replace=False)
        gap = true[names[a]] - true[names[b]]
        weights = np.array([math.exp(gap / 2), math.exp(-gap / 2), nu])
        result = ("win", "loss", "tie")[rng.choice(3, p=weights / weights.sum())]
        played.append(Game(names[a], names[b], result, str(k)))
    found = leaderboard(played)
    assert [s.policy for s in found.standings] == ["three", "two", "one", "base"]
    assert found.tie == pytest.approx(nu, abs=0.06)
    for standing in found.standings:
        assert standing.score == pytest.approx(true[standing.policy], abs=0.12)
        assert standing.interval is not None
        assert standing.interval[0] < true[standing.policy] < standing.interval[1]


def test_votes_on_one_item_are_not_independent() -> None:
    """Five votes on each of 30 items, all alike: the interval is that of 30 items, not of 150."""
    alike = [Game("a", "b", "win" if k < 20 else "loss", str(k)) for k in range(30) for _ in range(5)]
    apart = [game._replace(item=f"{game.item}/{n}") for n, game in enumerate(alike)]
    clustered, free = leaderboard(alike).standings[0].interval, leaderboard(apart).standings[0].interval
    assert clustered is not None and free is not None
    assert (clustered[1] - clustered[0]) / (free[1] - free[0]) == pytest.approx(math.sqrt(5), rel=0.2)


def test_nothing_to_compare() -> None:
    assert leaderboard([]).standings == ()
    alone = leaderboard(games("a", "a", tie=4))
    assert alone.standings == () and alone.same_policy == 4 and math.isnan(alone.tie)
    mixed = leaderboard(games("a", "a", tie=4) + games("a", "b", win=1))
    assert (mixed.same_policy, mixed.votes, mixed.items) == (4, 1, 1)
    with pytest.raises(DataError, match="'draw' is no result"):
        leaderboard([Game("a", "b", "draw", "1")])


def test_games_of_labels() -> None:
    def judgement(outcome: str, checkpoints: tuple[str, str] = ("new", "old")) -> Judgement:
        item = Item(
            prompt=Prompt(id="p", text="p"),
            first=Completion(text="x"),
            second=Completion(text="y"),
            id="i",
            checkpoints=checkpoints,
        )
        return Judgement(item, Label(id="l", item="i", annotator="ann", version=1, outcome=outcome))  # type: ignore[arg-type]

    found = games_of([judgement(o) for o in ("first", "second", "tie", "both_bad", "skip")])
    assert [g.result for g in found] == ["win", "loss", "tie", "tie"]
    assert found[0] == Game("new", "old", "win", "i")
    assert games_of([judgement("first", ("", "old"))]) == []
