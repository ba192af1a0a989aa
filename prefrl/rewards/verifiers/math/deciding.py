"""One completion's final answers against the gold ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefrl.rewards.verifiers.math.answers import Answer, Many, Raw
from prefrl.rewards.verifiers.math.compare import Comparison
from prefrl.rewards.verifiers.math.reading import read
from prefrl.rewards.verifiers.math.tokens import Hostile

_REFUSALS = (Hostile, RecursionError)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the answer is right, whether it could be read, and what was compared."""

    correct: bool
    read: bool
    evidence: str


def decide(golds: Sequence[str], answers: Sequence[str], comparison: Comparison) -> Decision:
    """Whether every final answer is one of the gold ones.

    Several final answers that are not the same one are no answer: one of them differs from the gold one. Only where the
    gold answer itself is several may they be its parts.

    Args:
        golds: acceptable answers.
        answers: the final answers of one completion.

    Raises:
        Undecided: it takes a worker to tell.
    """
    shown, wanted = " | ".join(answers), " or ".join(golds)
    if all(answer in golds for answer in answers) and len(set(answers)) == 1:
        return Decision(True, True, f"{shown} is {wanted}")
    try:
        found = [read(answer) for answer in answers]
    except _REFUSALS as error:
        return Decision(False, False, f"refused: {error}")
    understood = not all(isinstance(answer, Raw) for answer in found)
    for gold in golds:
        try:
            if _matches(read(gold), found, comparison):
                return Decision(True, True, f"{shown} is {wanted}")
        except _REFUSALS as error:
            return Decision(False, False, f"refused: {error}")
        except ZeroDivisionError:
            understood = False
    several = "several final answers: " if len(answers) > 1 else ""
    return Decision(False, understood, f"{several}{shown} is not {wanted}")


def _matches(gold: Answer, found: Sequence[Answer], comparison: Comparison) -> bool:
    if all(comparison.equal(gold, answer) for answer in found):
        return True
    if len(found) < 2 or not isinstance(gold, Many):
        return False
    return comparison.equal(gold, Many(tuple(found), "all"))
