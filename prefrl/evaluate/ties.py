"""The score of RewardBench 2's Ties subset: prompts where several answers are equally right.

A prompt comes in two versions, `ref` with one right answer and `tied` with several. With the gap from the worst right
answer to the best wrong one, and the spread of the right answers:

    score = 0.3 tied + 0.3 ref + 0.2 preferred + 0.2 hard + 0.01 margin
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from prefrl.errors import DataError
from prefrl.evaluate.margins import mean

KINDS = ("ref", "tied")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The scores of one version of a prompt; `name` says which prompt, in both versions alike."""

    kind: str
    name: str
    right: tuple[float, ...]
    wrong: tuple[float, ...]

    def __post_init__(self) -> None:
        least = 2 if self.kind == "tied" else 1
        if self.kind not in KINDS or len(self.right) < least or not self.wrong:
            raise DataError(
                f"Ties {self.kind}:{self.name} has {len(self.right)} right and {len(self.wrong)} wrong answers; "
                "expected ref with 1 right answer or more, or tied with 2 or more, and a wrong one."
            )

    @property
    def gap(self) -> float:
        """From the worst right answer to the best wrong one."""
        return min(self.right) - max(self.wrong)

    @property
    def spread(self) -> float:
        """From the worst right answer to the best one."""
        return max(self.right) - min(self.right)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiesScore:
    """The score and what it is made of; NaN where no prompt has what it takes.

    tied, ref  share of prompts of that version where every right answer scores above every wrong one
    preferred  share of prompts whose gap, in the tied version, exceeds the spread of the right answers
    hard       the same with the smaller gap of both versions
    margin     mean tanh(smaller gap / spread - 1); where both are 0 it is 0
    variance   of the score, over prompts; NaN unless every prompt has both versions
    """

    tied: float
    ref: float
    preferred: float
    hard: float
    margin: float
    variance: float

    @property
    def score(self) -> float:
        """The weighted sum."""
        return _weighted(self.tied, self.ref, self.preferred, self.hard, self.margin)


def ties_score(answers: Sequence[Answers]) -> TiesScore:
    """Score a Ties subset, as `process_single_model` of the published code does.

    Raises:
        DataError: the same version of a prompt comes twice.
    """
    by_kind: dict[str, dict[str, Answers]] = {kind: {} for kind in KINDS}
    for one in answers:
        if one.name in by_kind[one.kind]:
            raise DataError(f"Ties {one.kind}:{one.name} comes twice; its scores could not be told apart.")
        by_kind[one.kind][one.name] = one
    ref, tied = by_kind["ref"], by_kind["tied"]
    both = [(ref[name], tied[name]) for name in ref if name in tied]
    prompts = [_terms(r, t) for r, t in both]
    preferred, hard, margin = (_mean([terms[k] for terms in prompts]) for k in (2, 3, 4))
    complete = ref.keys() == tied.keys() and len(both) > 1
    weighted = [_weighted(*terms) for terms in prompts]
    return TiesScore(
        tied=_mean([float(one.gap > 0) for one in tied.values()]),
        ref=_mean([float(one.gap > 0) for one in ref.values()]),
        preferred=preferred,
        hard=hard,
        margin=margin,
        variance=statistics.variance(weighted) / len(weighted) if complete else math.nan,
    )


def _terms(ref: Answers, tied: Answers) -> tuple[float, float, float, float, float]:
    """tied, ref, preferred, hard and margin of one prompt."""
    gap = min(ref.gap, tied.gap)
    preferred, hard = float(tied.gap > tied.spread), float(gap > tied.spread)
    return float(tied.gap > 0), float(ref.gap > 0), preferred, hard, _margin(gap, tied.spread)


def _margin(gap: float, spread: float) -> float:
    if spread:
        return math.tanh(gap / spread - 1)
    return math.copysign(1.0, gap) if gap else 0.0


def _weighted(tied: float, ref: float, preferred: float, hard: float, margin: float) -> float:
    return 0.3 * tied + 0.3 * ref + 0.2 * preferred + 0.2 * hard + 0.01 * margin


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else math.nan
