"""Labels of steps from counts: k of N continuations from the end of a step were right.

With p = P(right | steps so far) the share k / N has the mean p. The hard label, 1 where any continuation was right
(Math-Shepherd, arXiv 2312.08935), has the mean `1 - (1 - p)^N`: it is too high wherever 0 < p < 1, and of a wrong step
too, if those who go on can recover from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from prefrl.data.steps_styles import Count
from prefrl.errors import DataError

Counted = Literal["hard", "soft"]


def counted_label(count: Count, kind: Counted) -> float | None:
    """1 where any continuation was right, or the share of right ones; None where none was judged."""
    if count is None:
        return None
    k, n = count
    return float(k >= 1) if kind == "hard" else k / n


def hard_bias(p: float, n: int) -> float:
    """Mean of the hard label minus p: `1 - (1 - p)^n - p`, 0 or more."""
    return 1.0 - (1.0 - p) ** n - p


def hard_rule_finds(values: Sequence[float], first_error: int, n: int) -> float:
    """P(the first step whose n continuations are all wrong is the first error).

    Every earlier step must have a right continuation, and the wrong one none:
    `prod_{i < e} (1 - (1 - p_i)^n) (1 - p_e)^n`; without an error all steps must have one.

    Args:
        values: P(right) after every step.
        first_error: index of the first wrong step, -1 for none.
        n: continuations a step.
    """
    chance = 1.0
    for p in values[:first_error] if first_error >= 0 else values:
        chance *= 1.0 - (1.0 - p) ** n
    return chance * (1.0 - values[first_error]) ** n if first_error >= 0 else chance


def find_first_error(steps: int, count: Callable[[int], Count]) -> tuple[int, dict[int, Count]]:
    """Binary search for the first error of a solution whose answer is wrong (OmegaPRM, arXiv 2406.06592).

    It holds on to a beginning that can still succeed and one that cannot, and halves what is between: ceil(log2 steps)
    beginnings are tried, where trying all takes `steps`. It is exact where no wrong step has a right continuation.

    Args:
        steps: of the solution.
        count: tries the first so many steps; None where nothing could be judged.

    Returns:
        Index of the first wrong step, and the counts by the number of steps kept.

    Raises:
        DataError: there is no step, or a beginning could not be judged.
    """
    if steps < 1:
        raise DataError(f"a solution of {steps} steps; expected one at least")
    low, high = 0, steps
    tried: dict[int, Count] = {}
    while high - low > 1:
        middle = (low + high) // 2
        found = tried[middle] = count(middle)
        if found is None:
            raise DataError(f"no continuation of the first {middle} steps could be judged")
        low, high = (middle, high) if found[0] else (low, middle)
    return high - 1, tried
