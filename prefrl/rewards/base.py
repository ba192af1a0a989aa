"""What a reward source is, and the one place that calls it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from prefrl.errors import ConfigError, PrefrlError, RewardError, did_you_mean
from prefrl.types import Rollout, Score

if TYPE_CHECKING:
    from prefrl.model.engine import Engine
    from prefrl.rewards.compose import Clip, Gate, WeightedSum


@runtime_checkable
class RewardSource(Protocol):
    """Anything with a name that scores rollouts, whole groups at once.

    Optional methods: `attach(engine)` for sources that need the policy's tokenizer or log-probs, called once
    before a run; `update(rollouts, scores=None, demonstrations=None) -> dict[str, float]` for sources that
    learn between rollouts, `fit(...)`, `save(path)`, `state_dict()` / `load_state_dict(state)` for running
    state, and `close()`.
    """

    name: str

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout, in the same order."""
        ...


class Reward(ABC):
    """Base of the built-in sources: adds `0.7 * a + 0.3 * b`, `clip`, `gate` and `normalised`.

    `children` are the sources this one is made of; `update`, the state and `close` are passed on to them.
    """

    name: str
    children: tuple[RewardSource, ...] = ()

    @abstractmethod
    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout, in the same order."""

    def update(
        self, rollouts: Sequence[Rollout], scores: Sequence[Score] | None = None, demonstrations: Any = None
    ) -> dict[str, float]:
        """Let every child that learns take its step; metrics come back as `child/metric`."""
        metrics: dict[str, float] = {}
        for name, child in self._named_children():
            step = getattr(child, "update", None)
            learned = step(rollouts, scores=scores, demonstrations=demonstrations) if step else {}
            metrics.update({f"{name}/{key}": value for key, value in learned.items()})
        return metrics

    def attach(self, engine: Engine) -> None:
        """Let every child know the engine of the policy whose rollouts it will score."""
        for child in self.children:
            attach(child, engine)

    def state_dict(self) -> dict[str, Any]:
        """Running state, by child name; empty for sources that keep none."""
        states = {n: c.state_dict() for n, c in self._named_children() if hasattr(c, "state_dict")}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raises RewardError when it belongs to another reward."""
        children = dict(self._named_children())
        for name, child_state in state.items():
            load = getattr(children.get(name), "load_state_dict", None)
            if load is None:
                raise RewardError(
                    f"the saved state has a part {name!r}, which reward {self.name!r} does not have (it has "
                    f"{sorted(children) or 'none'}); resume with the rewards the run was started with"
                )
            load(child_state)

    def close(self) -> None:
        """Release what the children hold."""
        for child in self.children:
            if hasattr(child, "close"):
                child.close()

    def _named_children(self) -> list[tuple[str, RewardSource]]:
        return list(zip(unique_names(self.children), self.children, strict=True))

    def __mul__(self, weight: float) -> WeightedSum:
        from prefrl.rewards.compose import WeightedSum, terms_of

        if not isinstance(weight, Real):
            return NotImplemented
        return WeightedSum(terms_of(self, weight))

    __rmul__ = __mul__

    def __neg__(self) -> WeightedSum:
        return self * -1.0

    def __add__(self, other: Any) -> WeightedSum:
        from prefrl.rewards.compose import WeightedSum, terms_of

        if isinstance(other, Real):  # a constant cancels in every baseline; it is surely a slip
            return NotImplemented
        return WeightedSum([*terms_of(self), *terms_of(as_source(other))])

    def __radd__(self, other: Any) -> Reward:
        from prefrl.rewards.compose import WeightedSum, terms_of

        if isinstance(other, Real):
            return self if other == 0 else NotImplemented  # the built-in sum() starts from 0
        return WeightedSum([*terms_of(as_source(other)), *terms_of(self)])

    def __sub__(self, other: Any) -> WeightedSum:
        from prefrl.rewards.compose import WeightedSum, terms_of

        if isinstance(other, Real):
            return NotImplemented
        return WeightedSum([*terms_of(self), *terms_of(as_source(other), -1.0)])

    def clip(self, low: float, high: float) -> Clip:
        """This reward limited to [low, high]."""
        from prefrl.rewards.compose import Clip

        return Clip(self, low, high)

    def gate(self, by: Any, threshold: float, otherwise: float = 0.0) -> Gate:
        """This reward where `by` reaches `threshold`, `otherwise` elsewhere."""
        from prefrl.rewards.compose import Gate

        return Gate(self, by, threshold, otherwise)

    def normalised(self, kind: str = "running", **options: Any) -> Reward:
        """This reward on another scale: `fixed`, `running`, `group`, `rank` or `sigmoid`.

        Args:
            options: `mean` and `std` of fixed, `update` of running, `centre` and `scale` of sigmoid.

        Raises:
            ConfigError: unknown kind.
        """
        from prefrl.rewards.normalise import NORMALISERS

        if kind not in NORMALISERS:
            raise ConfigError(
                f"normalise is {kind!r}; valid: {', '.join(NORMALISERS)}.{did_you_mean(kind, NORMALISERS)}"
            )
        return NORMALISERS[kind](self, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def as_source(obj: Any) -> Any:
    """`obj` itself when it is a reward source, a function as a source; raises RewardError otherwise."""
    if isinstance(obj, type):
        raise RewardError(f"got the class {obj.__name__}; a reward source is an instance: {obj.__name__}(...)")
    if isinstance(obj, RewardSource):
        return obj
    if callable(obj):
        from prefrl.rewards.functions import function

        return function(obj)
    hint = " Use rewards.build([...]) for settings." if isinstance(obj, str | Mapping | list) else ""
    raise RewardError(
        f"got {obj!r} ({type(obj).__name__}) as a reward; expected a function, or an object with "
        f"`name` and `score(rollouts)`.{hint}"
    )


def parts_of(source: RewardSource) -> Iterator[RewardSource]:
    """A source and all that it is made of."""
    yield source
    for child in getattr(source, "children", ()):
        yield from parts_of(child)


def attach(source: RewardSource, engine: Engine) -> None:
    """Tell a source, if it wants to know, the engine of the policy whose rollouts it will score."""
    hook = getattr(source, "attach", None)
    if hook is not None:
        hook(engine)


def unique_names(sources: Sequence[RewardSource]) -> list[str]:
    """Names of the sources; a name used again gets the suffix _2, _3, ..."""
    names: list[str] = []
    for source in sources:
        suffixed = (f"{source.name}_{i}" for i in range(2, len(sources) + 2))
        names.append(next(n for n in (source.name, *suffixed) if n not in names))
    return names


def verified_scores(source: RewardSource, rollouts: Sequence[Rollout]) -> list[Score]:
    """Scores of one source with every unusable one turned into an error; never raises for bad scores.

    For sources made of sources; everything else calls `checked_scores`.
    """
    return _attempt(source, rollouts)[0]


def checked_scores(
    source: RewardSource, rollouts: Sequence[Rollout], *, max_error_fraction: float = 0.1
) -> list[Score]:
    """Score rollouts, turn every unusable score into an error, and stop when there are too many errors.

    A NaN or infinite value, step or part, a step outside the completion or on a token the policy did not
    sample, and a score without any value become `Score.failed(reason)`. An exception of the source fails
    every rollout. One failure in a batch is always tolerated, unless it is the whole batch or
    `max_error_fraction` is 0.

    Raises:
        RewardError: errors beyond `max_error_fraction` of the batch, errors everywhere, or not exactly
            one `Score` per rollout. Errors that prefrl itself raises (a missing column) pass unchanged.
    """
    if not rollouts:
        return []
    scores, raised = _attempt(source, rollouts)
    failed = [i for i, score in enumerate(scores) if not score.ok]
    allowed = max(1, int(max_error_fraction * len(scores))) if max_error_fraction > 0 else 0
    if failed and (len(failed) > allowed or len(failed) == len(scores)):
        first = failed[0]
        share = len(failed) / len(scores)
        advice = "Fix the source or its data"
        if share < 1.0:
            advice += f", or allow more errors: max_error_fraction={math.ceil(share * 100) / 100:g}"
        raise RewardError(
            f"reward {source.name!r} failed on {len(failed)} of {len(scores)} rollouts "
            f"({share:.0%}; {max_error_fraction:.0%} allowed). First at prompt "
            f"{rollouts[first].prompt.id!r}: {scores[first].error}. {advice}."
        ) from raised
    return scores


def error_counts(scores: Sequence[Score]) -> dict[str, int]:
    """How often each error occurred, the most frequent first."""
    return dict(Counter(score.error for score in scores if score.error is not None).most_common())


def _attempt(source: RewardSource, rollouts: Sequence[Rollout]) -> tuple[list[Score], Exception | None]:
    try:
        scores = source.score(rollouts)
    except PrefrlError:
        raise
    except Exception as error:
        return [Score.failed(f"{type(error).__name__}: {error}")] * len(rollouts), error
    if not isinstance(scores, Sequence) or len(scores) != len(rollouts):
        got = f"{len(scores)} scores" if isinstance(scores, Sequence) else type(scores).__name__
        raise RewardError(
            f"reward {source.name!r} returned {got} for {len(rollouts)} rollouts; expected a list with one Score each"
        )
    return [_verified(source, *pair) for pair in zip(scores, rollouts, strict=True)], None


def _verified(source: RewardSource, score: Score, rollout: Rollout) -> Score:
    if not isinstance(score, Score):
        raise RewardError(
            f"reward {source.name!r} returned {score!r} ({type(score).__name__}) for a rollout; expected a "
            f"Score: Score(value=...). Plain numbers are for functions: rewards.function(fn)."
        )
    if score.ok and "error" in rollout.info:
        return Score.failed(f"the environment failed: {rollout.info['error']}")
    problem = _problem(score, rollout) if score.ok else None
    return Score.failed(problem) if problem else score


def _problem(score: Score, rollout: Rollout) -> str | None:
    if score.value is None and not score.steps:
        return "the score has neither a value nor steps"
    if score.value is not None and not _finite(score.value):
        return f"the value is {score.value!r}, not a finite number"
    n = len(rollout.completion_ids)
    for index, reward in score.steps:
        if not 0 <= index < n:
            return f"a step is at token {index} of a completion of {n} tokens"
        if not rollout.mask[index]:
            return f"a step is at token {index}, which the policy did not sample"
        if not _finite(reward):
            return f"the step at token {index} is {reward!r}, not a finite number"
    bad = next((name for name, part in score.parts.items() if not _finite(part)), None)
    return None if bad is None else f"the part {bad!r} is {score.parts[bad]!r}, not a finite number"


def _finite(number: Any) -> bool:
    return isinstance(number, Real) and math.isfinite(number)
