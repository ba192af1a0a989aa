"""How far each annotator can be trusted, where nobody knows the answers: Dawid-Skene, and a noisy Bradley-Terry model.

Both hold that people are right on the whole. Where most of them are not, what they agree on is taken for the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from prefrl.errors import DataError
from prefrl.evaluate.coefficients import Array, Ratings, Value
from prefrl.evaluate.statistics import Interval, wilson

Indices = NDArray[np.int64]

# Of the reliabilities of a noisy Bradley-Terry model, which are 1 on the whole; what reward models are trained with.
_PRIOR_DEVIATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What Dawid-Skene finds out about one person.

    votes      their ratings
    accuracy   expected share of them that are right
    interval   of it (Wilson), as if the truth were known as well as it is believed
    chance     what somebody gets who answers as often so, but at random
    verdict    see `verdict_of`: against chance, and the share of right ones among everybody's
    confusion  P(they say the second value | the first is true), by name
    """

    votes: int
    accuracy: float
    interval: Interval
    chance: float
    verdict: str
    confusion: Mapping[Value, Mapping[Value, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DawidSkene:
    """What is true of every item, how often each value is, and how people err; `undefined` says why there is nothing.

    truth   item -> value -> probability
    steps   of the EM algorithm
    """

    truth: Mapping[str, Mapping[Value, float]]
    prior: Mapping[Value, float]
    workers: Mapping[str, Worker]
    steps: int = 0
    converged: bool = False
    undefined: str = ""

    def best(self, item: str) -> Value:
        """The likeliest value of an item; the first one of equally likely ones."""
        return max(self.truth[item].items(), key=lambda entry: entry[1])[0]


class _Votes(NamedTuple):
    """Ratings as columns of indices, one row each."""

    items: list[str]
    people: list[str]
    values: list[Value]
    item: Indices
    person: Indices
    value: Indices


def dawid_skene(
    ratings: Ratings, *, smoothing: float = 0.5, tolerance: float = 1e-4, max_steps: int = 500
) -> DawidSkene:
    """Latent truths and confusion matrices by EM (Dawid and Skene, 1979).

        P(truth of i = k) ~ prior[k] * product over ratings (j, l) of i of confusion_j[k, l]

    It starts at the shares of the votes. `smoothing` is added to every count, so that no probability is 0 and few votes
    cannot make anyone perfect; EM then climbs the posterior under that Dirichlet prior.

    Args:
        ratings: item -> person -> value; an item that one person rated counts too.
        smoothing: more than 0.
        tolerance: largest change of a probability at which it has converged.
        max_steps: most steps.
    """
    votes = _columns(ratings)
    if reason := _unidentified(ratings, votes):
        return DawidSkene(truth={}, prior={}, workers={}, undefined=reason)
    truth = np.zeros((len(votes.items), len(votes.values)))
    np.add.at(truth, (votes.item, votes.value), 1.0)
    truth /= truth.sum(1, keepdims=True)
    starts = _starts(votes.item)
    steps, change = 0, np.inf
    while steps < max_steps and change > tolerance:
        prior = truth.sum(0) + smoothing
        prior /= prior.sum()
        confusion = _confusion(votes, truth, smoothing)
        logs = np.log(prior) + np.add.reduceat(np.log(confusion)[votes.person, :, votes.value], starts)
        fresh = np.exp(logs - logs.max(1, keepdims=True))
        fresh /= fresh.sum(1, keepdims=True)
        change, truth, steps = float(np.abs(fresh - truth).max()), fresh, steps + 1
    return DawidSkene(
        truth={item: _named(votes.values, row) for item, row in zip(votes.items, truth, strict=True)},
        prior=_named(votes.values, prior),
        workers=_workers(votes, truth, prior, confusion),
        steps=steps,
        converged=change <= tolerance,
    )


def _confusion(votes: _Votes, truth: Array, smoothing: float) -> Array:
    """P(a person says a value | the truth), (people, true, said), of truths (items, values)."""
    people, values = len(votes.people), len(votes.values)
    cell = votes.person * values + votes.value
    counts = [np.bincount(cell, column, people * values).reshape(people, values) for column in truth[votes.item].T]
    table = np.stack(counts, axis=1) + smoothing
    return np.asarray(table / table.sum(2, keepdims=True), np.float64)


def _starts(item: Indices) -> Indices:
    """Where each item's rows begin; they lie together, in the order of items."""
    return np.flatnonzero(np.diff(item, prepend=-1))


def _workers(votes: _Votes, truth: Array, prior: Array, confusion: Array) -> dict[str, Worker]:
    right = np.bincount(votes.person, truth[votes.item, votes.value], len(votes.people))
    said = np.zeros((len(votes.people), len(votes.values)))
    np.add.at(said, (votes.person, votes.value), 1.0)
    found, average = {}, float(right.sum() / said.sum())
    for index, person in enumerate(votes.people):
        total = int(said[index].sum())
        interval, chance = wilson(min(right[index], total), total), float(said[index] @ prior) / total
        table = {value: _named(votes.values, row) for value, row in zip(votes.values, confusion[index], strict=True)}
        found[person] = Worker(
            votes=total,
            accuracy=float(right[index]) / total,
            interval=interval,
            chance=chance,
            verdict=verdict_of(interval, chance, average),
            confusion=table,
        )
    return found


def verdict_of(interval: Interval, chance: float, average: float) -> str:
    """reliable is above chance and adversarial below; random may be chance but not the average; all else is unclear."""
    if interval[1] < chance:
        return "adversarial"
    if interval[0] > chance:
        return "reliable"
    return "random" if interval[1] < average else "unclear"


def _columns(ratings: Ratings) -> _Votes:
    rows = [(item, person, value) for item, said in ratings.items() for person, value in said.items()]
    items, people = list(dict.fromkeys(row[0] for row in rows)), sorted({row[1] for row in rows})
    values: list[Value] = sorted({row[2] for row in rows}, key=lambda v: (isinstance(v, str), v))
    places = [{name: i for i, name in enumerate(names)} for names in (items, people, values)]
    columns = [np.array([place[row[k]] for row in rows], dtype=np.int64) for k, place in enumerate(places)]
    return _Votes(items, people, values, *columns)


def _unidentified(ratings: Ratings, votes: _Votes) -> str:
    if not votes.items:
        return "nobody rated anything yet"
    if all(len(said) < 2 for said in ratings.values()):
        return "no item was rated by two people"
    return "" if len(votes.values) > 1 else f"every rating is {votes.values[0]!r}"


def _named(values: Sequence[Value], numbers: Array) -> dict[Value, float]:
    return {value: float(number) for value, number in zip(values, numbers, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """alpha of one person: 1 is average, 0 guesses, below 0 opposes; `interval` holds it with 95%."""

    alpha: float
    interval: Interval
    votes: int

    @property
    def verdict(self) -> str:
        """See `verdict_of`."""
        return verdict_of(self.interval, 0.0, 1.0)


def noisy_bradley_terry(
    shares: Mapping[str, Mapping[str, float]], *, deviation: float = _PRIOR_DEVIATION
) -> dict[str, Reliability]:
    """Reliabilities of people who compare pairs, with the gaps between the two sides of the pairs integrated out:

        P(j prefers the first of i) = sigmoid(alpha_j z_i)    z_i ~ N(0, scale^2)    alpha_j ~ N(1, deviation^2)

    The mean of alpha over all votes is held at 1, and scale is learnt. The mode is found by L-BFGS, the integrals on a
    grid; intervals are those of the Laplace approximation. Few votes stay near 1.

    Args:
        shares: pair -> person -> 1 for the first, 0 for the second, 1/2 for neither.
        deviation: of the prior.

    Raises:
        DataError: a share outside [0, 1].
    """
    problem = Gaps(shares, deviation)
    if not problem.people:
        return {}
    from scipy.optimize import minimize

    start = np.zeros(len(problem.people) + 1)
    found = minimize(problem.loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    alphas, errors = problem.alphas(found), problem.errors(found)
    return {
        person: Reliability(alpha=float(a), interval=(float(a - 1.96 * e), float(a + 1.96 * e)), votes=int(n))
        for person, a, e, n in zip(problem.people, alphas, errors, problem.votes, strict=True)
    }


class Gaps:
    """The negative log-posterior of free reliabilities (J,) and the log of the scale of gaps, laid end to end."""

    def __init__(self, shares: Mapping[str, Mapping[str, float]], deviation: float, nodes: int = 31) -> None:
        rows = [(item, person, share) for item, said in shares.items() for person, share in said.items()]
        if wrong := [share for _, _, share in rows if not 0.0 <= share <= 1.0]:
            raise DataError(f"A comparison has the share {wrong[0]}; expected 1 (first), 0 (second) or between.")
        self.people = sorted({person for _, person, _ in rows})
        place = {person: i for i, person in enumerate(self.people)}
        item = {name: i for i, name in enumerate(dict.fromkeys(name for name, _, _ in rows))}
        self.item = np.array([item[name] for name, _, _ in rows], dtype=np.int64)
        self.person = np.array([place[person] for _, person, _ in rows], dtype=np.int64)
        self.share = np.array([share for _, _, share in rows], dtype=np.float64)[:, None]
        self.starts = _starts(self.item)
        self.votes = np.bincount(self.person, minlength=len(self.people))
        self.deviation = deviation
        self.nodes = np.linspace(-4.0, 4.0, nodes)
        self.logs = -0.5 * self.nodes**2
        self.logs -= np.logaddexp.reduce(self.logs)

    def alphas(self, x: Array) -> Array:
        """Reliabilities, of a mean of 1 over all votes."""
        return 1.0 + x[:-1] - self.votes @ x[:-1] / self.votes.sum()

    def loss(self, x: Array) -> tuple[float, Array]:
        """The value and its gradient."""
        logit, posterior, evidence = self._posterior(x)
        slope = (posterior[self.item] * (self.share - expit(logit))).ravel()
        to_scale = float(slope @ logit.ravel())
        by_vote = slope.reshape(logit.shape) @ (np.exp(x[-1]) * self.nodes)
        off_mean = self.votes @ x[:-1] / self.votes.sum()
        off = self.alphas(x) - 1
        # A weak prior on the log of the scale, without which unanimous people would drive it off to infinity; and the
        # mean of the free numbers, which nothing else determines, is held at 0.
        value = -evidence + 0.5 * ((off**2).sum() / self.deviation**2 + x[-1] ** 2 + off_mean**2)
        to_alphas = off / self.deviation**2 - np.bincount(self.person, by_vote, len(self.people))
        to_free = to_alphas + (off_mean - to_alphas.sum()) * self.votes / self.votes.sum()
        return float(value), np.append(to_free, x[-1] - to_scale)

    def errors(self, x: Array) -> Array:
        """Standard errors of the reliabilities (J,)."""
        share = np.append(self.votes / self.votes.sum(), 0.0)
        held = np.eye(len(x)) - np.outer(np.append(np.ones(len(self.people)), 0.0), share)  # alphas of free numbers
        prior = np.outer(share, share)
        prior[-1, -1] = 1.0
        spread = held @ np.linalg.inv(held.T @ self.information(x) @ held + prior) @ held.T
        return np.asarray(np.sqrt(np.diag(spread)[:-1]), np.float64)

    def information(self, x: Array) -> Array:
        """Observed information of reliabilities and log scale (J + 1, J + 1), with the prior of the former.

        The expected information of votes whose gaps are known, less the variance of their gradients (Louis, 1982).
        """
        from scipy.sparse import csr_array

        logit, posterior, _ = self._posterior(x)
        weight, miss = posterior[self.item], self.share - expit(logit)
        steep = weight * expit(logit) * expit(-logit)
        scaled = np.exp(x[-1]) * self.nodes  # what a reliability is multiplied by
        size = len(self.people)
        found = np.zeros((size + 1, size + 1))
        np.fill_diagonal(found[:size, :size], np.bincount(self.person, steep @ scaled**2, size))
        found[:size, -1] = np.bincount(self.person, ((steep * logit - weight * miss) * scaled).sum(1), size)
        found[-1, :size] = found[:size, -1]
        found[-1, -1] = (steep * logit**2 - weight * miss * logit).sum()
        # A row for each pair: the gradient of its votes by every reliability, and by the scale.
        columns = np.stack([self.person, np.full_like(self.person, size)], axis=1).ravel()
        bounds = np.append(2 * self.starts, 2 * len(self.person))
        shape = (len(self.starts), size + 1)
        mean = np.zeros(2 * len(self.person))
        for node, known in enumerate(posterior.T):
            gradient = (miss[:, node, None] * np.stack([np.full(len(miss), scaled[node]), logit[:, node]], 1)).ravel()
            mean += np.repeat(known[self.item], 2) * gradient
            rows = csr_array((gradient, columns, bounds), shape=shape)
            found -= (rows.T @ (rows * known[:, None])).toarray()
        average = csr_array((mean, columns, bounds), shape=shape)
        found += (average.T @ average).toarray()
        found[:size, :size] += np.eye(size) / self.deviation**2
        return found

    def _posterior(self, x: Array) -> tuple[Array, Array, float]:
        """Logits (votes, nodes), the posterior of every pair's gap (pairs, nodes), and the log of the evidence."""
        logit = self.alphas(x)[self.person][:, None] * (np.exp(x[-1]) * self.nodes)
        likely = self.logs + np.add.reduceat(self.share * logit - np.logaddexp(0.0, logit), self.starts)
        top = likely.max(1, keepdims=True)
        weight = np.exp(likely - top)
        whole = weight.sum(1, keepdims=True)
        return logit, weight / whole, float((top + np.log(whole)).sum())
