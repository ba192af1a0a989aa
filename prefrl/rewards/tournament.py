"""Answers to one prompt against each other, two at a time: any comparer as a reward source."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from statistics import fmean
from typing import Any, Literal, Protocol, runtime_checkable

from prefrl.errors import ConfigError, PrefrlError, RewardError
from prefrl.rewards.base import Reward, RewardSource, verified_scores
from prefrl.rewards.calls import run_calls
from prefrl.rewards.normalise import sigmoid
from prefrl.types import Rollout, Score

PRIOR = 0.1  # precision of the Gaussian prior on strengths: a standard deviation of 3.2 in log-odds
_PASSES, _CLOSE, _NOISE = 100, 1e-12, 1e-9  # of Newton's method for strengths

Pairing = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Match:
    """Two rollouts of one prompt, to be compared."""

    first: Rollout
    second: Rollout

    @property
    def equal(self) -> bool:
        """Whether the two are the same answer, token by token."""
        one, other = self.first, self.second
        return one.text == other.text and one.completion_ids == other.completion_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a comparer says of a match: the probability that the first is better, or why it cannot say.

    parts  named numbers for metrics, such as whether the verdict changed with the order of the two
    """

    probability: float = math.nan
    error: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Comparer(Protocol):
    """Anything with a name that says which of two answers is better, many matches at once."""

    name: str

    def compare(self, matches: Sequence[Match]) -> list[Outcome]:
        """One outcome per match, in the same order."""
        ...


class ScoreDifference:
    """A reward source as a comparer: `P(first is better) = sigmoid((r_first - r_second) / scale)`.

    For a Bradley-Terry reward model and scale 1 this is the model's own probability. Every rollout is scored once.
    """

    def __init__(self, source: RewardSource, scale: float = 1.0) -> None:
        if not scale > 0:
            raise ConfigError(f"tournament: scale={scale}; expected a positive number")
        self.source, self.scale = source, scale
        self.name = source.name

    def compare(self, matches: Sequence[Match]) -> list[Outcome]:
        """Raises RewardError when the source does not give one score each."""
        players = list({id(r): r for match in matches for r in (match.first, match.second)}.values())
        scores = dict(zip(map(id, players), verified_scores(self.source, players), strict=True))
        return [self._outcome(scores[id(match.first)], scores[id(match.second)]) for match in matches]

    def _outcome(self, first: Score, second: Score) -> Outcome:
        error = first.error or second.error
        if error is not None:
            return Outcome(error=error)
        return Outcome(probability=sigmoid((first.total - second.total) / self.scale))


class FunctionComparer:
    """A function of (prompt, first, second), all texts, that returns the probability that the first is better.

    True, False and 1/2 will do; None means that it cannot say.
    """

    def __init__(self, fn: Callable[..., Any], *, timeout: float | None = 30.0, workers: int = 8) -> None:
        self.fn, self.timeout, self.workers = fn, timeout, workers
        self.name = str(getattr(fn, "__name__", type(fn).__name__))

    def compare(self, matches: Sequence[Match]) -> list[Outcome]:
        """One call a match; an exception or a timeout is the error of that match."""
        calls = [
            functools.partial(self.fn, match.first.prompt.question, match.first.text, match.second.text)
            for match in matches
        ]
        found = run_calls(calls, timeout=self.timeout, workers=self.workers)
        return [Outcome(error=o.error) if o.error is not None else _as_outcome(o.value) for o in found]


def as_comparer(obj: Any, scale: float = 1.0) -> Comparer:
    """`obj` itself when it compares, a reward source by its differences, a function by its verdicts.

    Raises:
        RewardError: it is none of these.
        ConfigError: it is a comparer in a wrapper that hides that.
    """
    if not isinstance(obj, type):
        if isinstance(obj, Comparer):
            return obj
        if isinstance(obj, RewardSource):
            inside: Sequence[Any] = getattr(obj, "children", ())
            if len(inside) == 1 and isinstance(inside[0], Comparer):
                raise ConfigError(
                    f"tournament: {inside[0].name!r} compares answers, but its weight, normalise or clip would make "
                    "it grade them one by one; leave these out"
                )
            return ScoreDifference(obj, scale)
        if callable(obj):
            return FunctionComparer(obj)
    raise RewardError(
        f"got {obj!r} ({type(obj).__name__}) to compare answers; expected an object with `name` and "
        "`compare(matches)`, a reward source, or a function of (prompt, first, second)"
    )


class Tournament(Reward):
    """Each rollout's score is how it fares against the other rollouts of its group.

    wins      mean probability of winning its matches, in [0, 1]; 1/2 on average over the group
    strength  Bradley-Terry strength (Bradley and Terry, 1952) in log-odds by maximum likelihood, with a Gaussian prior
              of precision 0.1 that keeps it finite; it takes into account how strong the opponents were

    A match that the comparer could not judge is left out. A rollout without any valid match, also one that is alone in
    its group, is an error, never a 0. Two equal answers draw, without being compared. Parts: `matches`, the valid ones
    of the rollout, `wins`, and the means of the comparer's own parts.

    Args:
        by: a comparer, a reward source, or a function of (prompt, first, second).
        score: wins or strength.
        opponents: matches of each rollout; 0 plays a full round robin. Everybody plays equally many, so in groups of
            an odd size an odd number is raised by one.
        seed: of who meets whom, when not everybody meets everybody.
        scale: of score differences, where `by` is a reward source.
    """

    def __init__(
        self,
        by: Any,
        score: Literal["wins", "strength"] = "wins",
        *,
        opponents: int = 0,
        seed: int = 0,
        scale: float = 1.0,
    ) -> None:
        if score not in ("wins", "strength"):
            raise ConfigError(f"tournament: score={score!r}; expected wins or strength")
        if opponents < 0:
            raise ConfigError(f"tournament: opponents={opponents}; expected 0 (all) or more")
        self.by = as_comparer(by, scale)
        self._score, self.opponents, self.seed = score, opponents, seed
        self.children = (by,) if isinstance(by, RewardSource) else ()
        self.name = f"tournament({self.by.name})"

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Raises RewardError when the comparer does not give one outcome a match."""
        groups: dict[str, list[int]] = defaultdict(list)
        for place, rollout in enumerate(rollouts):
            groups[rollout.group].append(place)
        drawn = {name: self._pairings(name, places, rollouts) for name, places in groups.items()}
        played = iter(self._play([Match(rollouts[i], rollouts[j]) for pairs in drawn.values() for i, j in pairs]))
        scores: dict[int, Score] = {}
        for name, pairs in drawn.items():
            scores |= self._table(groups[name], pairs, list(itertools.islice(played, len(pairs))))
        return [scores[place] for place in range(len(rollouts))]

    def _pairings(self, group: str, places: Sequence[int], rollouts: Sequence[Rollout]) -> list[Pairing]:
        """Who meets whom. It depends on the seed and on what was answered, not on the order of the rollouts."""
        if not 0 < self.opponents < len(places) - 1:
            return list(itertools.combinations(places, 2))

        def drawn(place: int) -> bytes:
            rollout = rollouts[place]
            said = "\n".join([str(self.seed), group, str(rollout.completion_ids), rollout.text])
            return hashlib.sha256(said.encode("utf-8", "backslashreplace")).digest()

        circle = sorted(places, key=drawn)
        return [(circle[i], circle[j]) for i, j in circulant(len(circle), self.opponents)]

    def _play(self, matches: Sequence[Match]) -> list[Outcome]:
        asked = [match for match in matches if not match.equal]
        answers = iter(self._outcomes(asked) if asked else [])
        return [Outcome(probability=0.5) if match.equal else next(answers) for match in matches]

    def _outcomes(self, matches: Sequence[Match]) -> list[Outcome]:
        try:
            outcomes = self.by.compare(matches)
        except PrefrlError:
            raise
        except Exception as error:
            return [Outcome(error=f"{type(error).__name__}: {error}")] * len(matches)
        if not isinstance(outcomes, Sequence) or len(outcomes) != len(matches):
            got = f"{len(outcomes)} outcomes" if isinstance(outcomes, Sequence) else type(outcomes).__name__
            raise RewardError(f"comparer {self.by.name!r} returned {got} for {len(matches)} matches; expected one each")
        return [_as_outcome(outcome) for outcome in outcomes]

    def _table(self, places: Sequence[int], pairs: Sequence[Pairing], outcomes: Sequence[Outcome]) -> dict[int, Score]:
        """Scores of one group."""
        valid = [(pair, outcome) for pair, outcome in zip(pairs, outcomes, strict=True) if outcome.error is None]
        mine: dict[int, list[float]] = defaultdict(list)
        parts: dict[int, list[Mapping[str, float]]] = defaultdict(list)
        for (i, j), outcome in valid:
            mine[i].append(outcome.probability)
            mine[j].append(1.0 - outcome.probability)
            parts[i].append(outcome.parts)
            parts[j].append(outcome.parts)
        scores = {place: self._unplayed(place, pairs, outcomes) for place in places if place not in mine}
        values = {place: fmean(results) for place, results in mine.items()}
        strengths = values
        if self._score == "strength":
            results = [(i, j, outcome.probability) for (i, j), outcome in valid]
            strengths = bradley_terry_strengths(results)
        for place, results_of in mine.items():
            figures = {"matches": float(len(results_of)), "wins": values[place], **_means(parts[place])}
            scores[place] = Score(value=strengths[place], parts=figures)
        return scores

    def _unplayed(self, place: int, pairs: Sequence[Pairing], outcomes: Sequence[Outcome]) -> Score:
        reasons = Counter(o.error for pair, o in zip(pairs, outcomes, strict=True) if place in pair)
        if not reasons:
            advice = "sample at least 2 completions a prompt (eval_samples: 2)"
            return Score.failed(f"alone in its group, and a tournament needs two; {advice}")
        (reason, _), count = reasons.most_common(1)[0], sum(reasons.values())
        return Score.failed(f"none of its {count} matches could be judged; most often: {reason}")


def circulant(n: int, degree: int) -> list[Pairing]:
    """Pairs of 0 .. n - 1 in which everybody occurs `degree` times, or once more where that cannot be.

    Neighbours on a circle at the distances 1, 2, ..., and the opposite one where `degree` is odd: with at least two
    opponents each, everybody is connected to everybody, so that strengths can be compared.
    """
    if degree % 2 and n % 2:
        degree += 1
    steps = range(1, degree // 2 + 1)
    pairs = [(i, (i + step) % n) for step in steps for i in range(n)]
    return pairs + [(i, i + n // 2) for i in range(n // 2)] if degree % 2 else pairs


def bradley_terry_strengths(results: Sequence[tuple[int, int, float]], prior: float = PRIOR) -> dict[int, float]:
    """Strengths that explain results best, by Newton's method.

        maximise  sum_(i,j) p log sigmoid(s_i - s_j) + (1 - p) log sigmoid(s_j - s_i)  -  prior / 2 sum_i s_i^2

    Args:
        results: (i, j, probability that i is better); a pair may occur several times.
        prior: precision of the Gaussian prior, above 0; without it the strength of who always won has no limit.

    Returns:
        A strength for everybody who occurs; they sum to 0, and differences are log-odds.
    """
    import numpy as np

    names = sorted({name for i, j, _ in results for name in (i, j)})
    index = {name: k for k, name in enumerate(names)}
    left = np.array([index[i] for i, _, _ in results])
    right = np.array([index[j] for _, j, _ in results])
    wins = np.array([p for _, _, p in results], dtype=np.float64)
    s = np.zeros(len(names))

    def objective(at: Any) -> float:
        gap = at[left] - at[right]
        return float((wins * gap - np.logaddexp(0.0, gap)).sum() - prior / 2 * (at @ at))

    for _ in range(_PASSES):
        chance = 1.0 / (1.0 + np.exp(-(s[left] - s[right])))
        gradient, curvature = -prior * s, prior * np.eye(len(names))
        for a, b in ((left, right), (right, left)):
            np.add.at(gradient, a, (wins - chance) * (1.0 if a is left else -1.0))
            np.add.at(curvature, (a, a), chance * (1.0 - chance))
            np.add.at(curvature, (a, b), -chance * (1.0 - chance))
        step = np.linalg.solve(curvature, gradient)
        now = objective(s)
        while objective(s + step) < now - _NOISE * abs(now):  # too far: the curvature falls off away from 0
            step = step / 2
        s = s + step
        if float(np.abs(step).max()) < _CLOSE:
            break
    return {name: float(s[k]) for name, k in index.items()}


def _as_outcome(given: Any) -> Outcome:
    """What a comparer returned, with everything unusable turned into an error."""
    if given is None:
        return Outcome(error="the comparer could not say")
    outcome = Outcome(probability=float(given)) if isinstance(given, Real) else given
    if not isinstance(outcome, Outcome):
        return Outcome(error=f"the comparer returned {given!r} ({type(given).__name__}); expected a probability")
    if outcome.error is None and not 0.0 <= outcome.probability <= 1.0:
        return Outcome(error=f"the comparer returned {outcome.probability}; expected a probability in [0, 1]")
    return outcome


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for found in parts for name in found)
    return {name: fmean(found[name] for found in parts if name in found) for name in names}
