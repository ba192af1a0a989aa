"""Which policy people prefer: a Bradley-Terry model with ties of all of them, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prefrl.data.comparisons import Judgement
from prefrl.errors import DataError
from prefrl.evaluate.coefficients import Array
from prefrl.evaluate.statistics import Interval, wilson

ELO = 400 / math.log(10)  # points of a unit of the scores: 400 points are odds of 10 to 1

_RESAMPLES = 400
_TIE_DEVIATION = 3.0  # of the log of the tie parameter: hardly a prior, but without a tie there is a mode


class Game(NamedTuple):
    """One person's word on answers of two policies: win of the first, loss of it, or tie; `item` is what they saw."""

    first: str
    second: str
    result: str
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One policy.

    score      log odds against the average policy of its component, and its interval (bootstrap over items); None where
               resampling cannot tell
    wins, ties, losses   votes
    win_rate   with ties counted half, whoever the opponents were
    component  policies that no row of comparisons connects are in different ones, and cannot be compared
    """

    policy: str
    score: float
    interval: Interval | None
    wins: int
    ties: int
    losses: int
    component: int

    @property
    def elo(self) -> float:
        """The score in points around 1000."""
        return 1000 + ELO * self.score

    @property
    def elo_interval(self) -> Interval | None:
        """The interval in points."""
        return None if self.interval is None else (1000 + ELO * self.interval[0], 1000 + ELO * self.interval[1])

    @property
    def votes(self) -> int:
        """Number of votes on answers of this policy."""
        return self.wins + self.ties + self.losses

    @property
    def win_rate(self) -> float:
        """Share of wins, ties counted half."""
        return (self.wins + self.ties / 2) / self.votes

    @property
    def win_interval(self) -> Interval:
        """Of the win rate (Wilson)."""
        return wilson(self.wins + self.ties / 2, self.votes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """All policies, by component and the best first.

    tie          nu: a tie of equals is nu / 2 times as likely as that one of the two wins
    same_policy  games of a policy against itself, which say nothing and are left out
    """

    standings: Sequence[Standing]
    tie: float
    items: int
    votes: int
    same_policy: int = 0

    @property
    def components(self) -> int:
        """How many groups cannot be compared with each other."""
        return len({standing.component for standing in self.standings})


def games_of(judgements: Sequence[Judgement]) -> list[Game]:
    """Games of live labels whose items name the policies of both sides; two bad answers are a tie, skips are none."""
    results = {"first": "win", "second": "loss", "tie": "tie", "both_bad": "tie"}
    return [
        Game(*item.checkpoints, results[label.outcome], item.id)
        for item, label in judgements
        if label.outcome in results and all(item.checkpoints)
    ]


def leaderboard(games: Sequence[Game], *, deviation: float = 2.0, resamples: int = _RESAMPLES) -> Leaderboard:
    """Scores by Davidson's model (1970), Bradley-Terry with ties:

        P(win) : P(loss) : P(tie) = exp(g / 2) : exp(-g / 2) : nu,    g = s_a - s_b,    s ~ N(0, deviation^2)

    The prior keeps scores finite where a policy always wins, and their sum over each component of the comparisons 0.

    Args:
        games: votes; those on one item are resampled together.
        deviation: of the prior.
        resamples: of the bootstrap.

    Raises:
        DataError: a result is none of the three.
    """
    if wrong := [game.result for game in games if game.result not in _RESULTS]:
        raise DataError(f"{wrong[0]!r} is no result; expected win, loss or tie.")
    played = [game for game in games if game.first != game.second]
    if not played:
        return Leaderboard(standings=(), tie=math.nan, items=0, votes=0, same_policy=len(games))
    policies = sorted({name for game in played for name in game[:2]})
    counts, pairs = _table(played, policies)
    component = _components(pairs, len(policies))
    fit = _Davidson(pairs, len(policies), deviation)
    mode = fit.mode(counts.sum(0)[None])[0]
    scores = mode[:-1]
    intervals = _intervals(counts, lambda sums: fit.mode(sums)[:, :-1], resamples)
    standings = [
        Standing(policy=name, score=float(scores[i]), interval=intervals[i], component=int(component[i]), **tally)
        for i, (name, tally) in enumerate(zip(policies, _tallies(played, policies), strict=True))
    ]
    return Leaderboard(
        standings=sorted(standings, key=lambda s: (s.component, -s.score)),
        tie=float(np.exp(mode[-1])),
        items=len(counts),
        votes=len(played),
        same_policy=len(games) - len(played),
    )


_RESULTS = {"win": 0, "loss": 1, "tie": 2}
Indices = NDArray[np.int64]


def _table(games: Sequence[Game], policies: Sequence[str]) -> tuple[Array, Indices]:
    """Counts (items, pairs, 3) of wins, losses and ties, and the two policies of each pair (pairs, 2)."""
    place = {name: i for i, name in enumerate(policies)}
    pairs = sorted({tuple(sorted((place[g.first], place[g.second]))) for g in games})
    column = {pair: i for i, pair in enumerate(pairs)}
    row = {item: i for i, item in enumerate(dict.fromkeys(g.item for g in games))}
    counts = np.zeros((len(row), len(pairs), 3))
    turned = {"win": "loss", "loss": "win", "tie": "tie"}
    for g in games:
        one, other = place[g.first], place[g.second]
        result = g.result if one < other else turned[g.result]
        counts[row[g.item], column[min(one, other), max(one, other)], _RESULTS[result]] += 1
    return counts, np.array(pairs, dtype=np.int64)


def _components(pairs: Indices, policies: int) -> Indices:
    """Number of the component of every policy, in the order of their first policies."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(policies, policies))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


class _Davidson(NamedTuple):
    """The model of scores (K,) and the log of nu, for many tables of counts at once."""

    pairs: Indices
    policies: int
    deviation: float

    def mode(self, counts: Array, most: int = 100) -> Array:
        """Modes (R, K + 1) of counts (R, pairs, 3), by Newton's method with halved steps: the posterior is concave."""
        x = np.zeros((len(counts), self.policies + 1))
        value = self._value(x, counts)
        for _ in range(most):
            step = self._newton(x, counts)
            size = np.ones((len(x), 1))
            for _ in range(30):
                fresh = self._value(x + size * step, counts)
                worse = fresh < value - 1e-9 * (1 + np.abs(value))
                if not worse.any():
                    break
                size[worse] /= 2
            x, value = x + size * step, fresh
            if np.abs(size * step).max() < 1e-8:
                break
        return x

    @property
    def signs(self) -> Array:
        """How scores make gaps, (pairs, K): 1 for the first of a pair and -1 for the second."""
        rows = np.zeros((len(self.pairs), self.policies))
        index = np.arange(len(self.pairs))
        rows[index, self.pairs[:, 0]], rows[index, self.pairs[:, 1]] = 1.0, -1.0
        return rows

    @property
    def precision(self) -> Array:
        """Of the prior, (K + 1,)."""
        return np.append(np.full(self.policies, self.deviation**-2), _TIE_DEVIATION**-2)

    def _logs(self, x: Array) -> Array:
        """Log-probabilities (R, pairs, 3)."""
        half = x[:, :-1] @ self.signs.T / 2
        logits = np.stack([half, -half, np.broadcast_to(x[:, -1:], half.shape)], axis=2)
        return logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)

    def _value(self, x: Array, counts: Array) -> Array:
        return (counts * self._logs(x)).sum((1, 2)) - 0.5 * (x**2 @ self.precision)

    def _newton(self, x: Array, counts: Array) -> Array:
        signs, n = self.signs, counts.sum(2)
        chance = np.exp(self._logs(x))
        lead, tie = (chance[..., 0] - chance[..., 1]) / 2, chance[..., 2]
        to_gap = (counts[..., 0] - counts[..., 1]) / 2 - n * lead
        to_tie = (counts[..., 2] - n * tie).sum(1, keepdims=True)
        gradient = np.concatenate([to_gap @ signs, to_tie], axis=1) - x * self.precision
        squares = (signs[:, :, None] * signs[:, None, :]).reshape(len(signs), -1)
        information = np.zeros((len(x), self.policies + 1, self.policies + 1))
        inner = (n * ((1 - tie) / 4 - lead**2)) @ squares
        information[:, :-1, :-1] = inner.reshape(len(x), self.policies, self.policies)
        information[:, :-1, -1] = information[:, -1, :-1] = -(n * lead * tie) @ signs
        information[:, -1, -1] = (n * tie * (1 - tie)).sum(1)
        return np.asarray(
            np.linalg.solve(information + np.diag(self.precision), gradient[..., None])[..., 0], np.float64
        )


def _intervals(counts: Array, scores_of: Callable[[Array], Array], resamples: int) -> list[Interval | None]:
    """Percentile intervals over resampled items; None without spread."""
    items, flat = len(counts), counts.reshape(len(counts), -1)
    kinds, frequency = np.unique(flat, axis=0, return_counts=True)
    weights = np.random.default_rng(0).multinomial(items, frequency / items, resamples)
    scores = scores_of((weights @ kinds).reshape(resamples, *counts.shape[1:]))
    edges = np.quantile(scores, [0.025, 0.975], axis=0).T
    return [(float(low), float(high)) if high - low > 1e-9 else None for low, high in edges]


def _tallies(games: Sequence[Game], policies: Sequence[str]) -> list[dict[str, int]]:
    found = {name: {"wins": 0, "ties": 0, "losses": 0} for name in policies}
    sides = {"win": ("wins", "losses"), "loss": ("losses", "wins"), "tie": ("ties", "ties")}
    for game in games:
        for name, kind in zip(game[:2], sides[game.result], strict=True):
            found[name][kind] += 1
    return list(found.values())
