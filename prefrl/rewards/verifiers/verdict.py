"""What a verifier says of one answer: a score, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from prefrl.types import Score


class Status(StrEnum):
    """Whether an answer was judged; only the first two come with a score."""

    OK = "ok"  # judged
    INVALID = "invalid"  # the answer cannot be read: the policy's own failure, and a score of 0 unless given
    TIMEOUT = "timeout"  # the work took too long
    ERROR = "error"  # the verifier, or the gold answer, is at fault
    SKIP = "skip"  # this verifier has nothing to say of this rollout


SCORED = (Status.OK, Status.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier says of one rollout.

    score     finite where the status is ok or invalid, None otherwise: no judgement is never a 0
    parts     named numbers for metrics; an invalid verdict has the part `parsed` = 0
    evidence  what was compared, or what went wrong, in words
    cost      seconds of work, without waiting for a free worker
    version   of the verifier

    Raises:
        ValueError: a score that is missing, not finite, or given beside a status that has none.
    """

    status: Status
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""
    cost: float = 0.0
    version: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.INVALID:
            object.__setattr__(self, "score", 0.0 if self.score is None else self.score)
            object.__setattr__(self, "parts", {"parsed": 0.0, **self.parts})
        if self.status not in SCORED:
            if self.score is not None:
                raise ValueError(f"a verdict of status {self.status} has the score {self.score}; expected none")
        elif self.score is None or not math.isfinite(self.score):
            raise ValueError(f"a verdict of status {self.status} has the score {self.score}; expected a finite number")

    @property
    def scored(self) -> bool:
        """Whether there is a score."""
        return self.status in SCORED

    def to_score(self) -> Score:
        """The score; where there is none, `Score.failed`: what went wrong, or `timeout: ...` and `skip: ...`."""
        if self.scored:
            return Score(value=self.score, parts=self.parts)
        if self.status is Status.ERROR and self.evidence:
            return Score.failed(self.evidence)
        return Score.failed(f"{self.status}: {self.evidence}" if self.evidence else str(self.status))

    def stamped(self, version: str, cost: float) -> Verdict:
        """This verdict with the verifier's version, and with its cost where none was measured."""
        return replace(self, version=self.version or version, cost=self.cost or cost)


def failure(why: str, status: Status = Status.ERROR) -> Verdict:
    """A verdict without a score."""
    return Verdict(status=status, evidence=why)


def unreadable(evidence: str, *parts: str) -> Verdict:
    """0, with the parts that a readable answer has, all 0: their means are over all answers then."""
    return Verdict(status=Status.INVALID, score=0.0, parts=dict.fromkeys(("parsed", *parts), 0.0), evidence=evidence)


def graded(*, parsed: bool, correct: bool, evidence: str = "") -> Verdict:
    """1 or 0 with parts: mean(parsed) is the parse rate, sum(correct) / sum(parsed) the accuracy given it."""
    return Verdict(
        status=Status.OK if parsed else Status.INVALID,
        score=float(correct),
        parts={"parsed": float(parsed), "correct": float(correct)},
        evidence=evidence,
    )
