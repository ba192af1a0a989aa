"""Sampling and scoring of one step's rollouts, with groups of equal rewards replaced (DAPO, arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prefrl.policy.credit import countable, has_signal
from prefrl.policy.metrics import rollout_metrics
from prefrl.policy.parts import OverlongSpec
from prefrl.types import Prompt, Rollout, Score

More = Callable[[int], Sequence[Prompt]]  # so many further prompts
SampleOf = Callable[[Sequence[Prompt], int], list[Rollout]]  # prompts and round -> rollouts


KEEP = OverlongSpec()


class Scorer(Protocol):
    """A reward source whose scores were checked; `update` co-trains it and may do nothing."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout, whole groups at once."""
        ...

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Mapping[str, float]:
        """Learn from the rollouts just used; metrics."""
        ...


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rollouts and scores to learn from, and what gathering them cost."""

    rollouts: list[Rollout]
    scores: list[Score]
    metrics: dict[str, float]


def gather(
    sample: SampleOf,
    scorer: Scorer,
    prompts: Sequence[Prompt],
    *,
    rounds: int = 0,
    more: More | None = None,
    overlong: OverlongSpec = KEEP,
) -> Gathered:
    """Sample and score a group per prompt; then, at most `rounds` times, fresh prompts for groups without a signal.

    What is still missing after the last round is left out: the step learns from what there is. The metrics
    `resample/...` say what this costs: the share of groups and the tokens thrown away, the shift in difficulty
    (mean reward of what is kept minus that of all sampled), and how full the batch became; rewards, lengths and groups
    are then figures of all that was sampled.

    Args:
        sample: draws a group per prompt; the round is its second argument.
        more: gives further prompts; without it nothing is replaced.
        overlong: truncated rollouts that are masked or scored 0 are judged so; a soft penalty makes no signal.
    """
    rollouts = sample(prompts, 0)
    scores = scorer.score(rollouts)
    if not rounds or more is None:
        return Gathered(rollouts, scores, {})
    seen, seen_scores = list(rollouts), list(scores)
    kept, kept_scores = _with_signal(rollouts, scores, overlong)
    used = 0
    while used < rounds and _groups(kept) < len(prompts):
        used += 1
        fresh = sample(more(len(prompts) - _groups(kept)), used)
        fresh_scores = scorer.score(fresh)
        seen, seen_scores = seen + fresh, seen_scores + fresh_scores
        more_kept, more_scores = _with_signal(fresh, fresh_scores, overlong)
        kept, kept_scores = kept + more_kept, kept_scores + more_scores
    tokens = sum(sum(r.mask) for r in seen)
    metrics = rollout_metrics(seen, seen_scores) | {
        "resample/rounds": float(used),
        "resample/discarded": 1.0 - _groups(kept) / max(1, _groups(seen)),
        "resample/wasted_tokens": float(tokens - sum(sum(r.mask) for r in kept)),
        "resample/filled": _groups(kept) / max(1, len(prompts)),
        "resample/difficulty_shift": _mean_total(kept_scores) - _mean_total(seen_scores) if kept else 0.0,
    }
    # Without any signal the step still has its rollouts to report; uniform groups teach nothing anyway.
    return Gathered(kept, kept_scores, metrics) if kept else Gathered(rollouts, scores, metrics)


def _with_signal(
    rollouts: Sequence[Rollout], scores: Sequence[Score], overlong: OverlongSpec
) -> tuple[list[Rollout], list[Score]]:
    """The groups that can teach by comparison, whole."""
    judged = KEEP if overlong.rule == "soft" else overlong
    counted = countable(rollouts, scores, judged, budget=0)
    varied = {s.rollout.group for s, signal in zip(counted, has_signal(counted).tolist(), strict=True) if signal}
    pairs = [(r, s) for r, s in zip(rollouts, scores, strict=True) if r.group in varied]
    return [r for r, _ in pairs], [s for _, s in pairs]


def _groups(rollouts: Sequence[Rollout]) -> int:
    return len({r.group for r in rollouts})


def _mean_total(scores: Sequence[Score]) -> float:
    totals = [s.total for s in scores if s.ok]
    return sum(totals) / max(1, len(totals))
