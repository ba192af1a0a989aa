"""How many comparisons are asked for in each round, and which."""

from __future__ import annotations

import math
import random
from typing import Literal, get_args

from torch import Tensor

from prefrl.errors import ConfigError, did_you_mean
from prefrl.rewards.trajectory.preferences import preferred

Schedule = Literal["constant", "hyperbolic", "inverse_quadratic"]
Measure = Literal["probability", "gap", "label"]


def query_counts(total: int, rounds: int, *, first_share: float = 0.1, schedule: Schedule = "hyperbolic") -> list[int]:
    """Comparisons of every round, which add up to `total`.

    The first round, whose policy knows nothing yet, gets `first_share` of them. The others share the rest in
    proportion to 1, 1 / (1 + t) or 1 / (1 + t^2), t from 0 in the second round to 1 in the last; fractions go to the
    rounds with the largest ones.

    Raises:
        ConfigError: an unknown schedule.
    """
    if schedule not in get_args(Schedule):
        valid = get_args(Schedule)
        raise ConfigError(f"schedule is {schedule!r}; valid: {', '.join(valid)}.{did_you_mean(schedule, valid)}")
    if rounds == 1:
        return [total]
    first = min(total, max(1, round(first_share * total)))
    times = [i / max(1, rounds - 2) for i in range(rounds - 1)]
    power = {"constant": 0, "hyperbolic": 1, "inverse_quadratic": 2}[schedule]
    weights = [1.0 / (1.0 + t**power) if power else 1.0 for t in times]
    shares = [(total - first) * weight / sum(weights) for weight in weights]
    counts = [math.floor(share) for share in shares]
    by_fraction = sorted(range(rounds - 1), key=lambda i: counts[i] - shares[i])
    for i in by_fraction[: total - first - sum(counts)]:
        counts[i] += 1
    return [first, *counts]


def disagreement(gaps: Tensor, measure: Measure = "probability", noise: float = 0.0) -> Tensor:
    """Variance (P,) over M reward nets of what they say of each pair, gaps (M, P): 0 for a single net.

    probability  of P(first), at most 1/4: high where some are sure of the one and some of the other
    gap          of the difference of returns, which also counts how large it is
    label        of which is better, in {0, 1}: 1/4 where they split evenly
    """
    said = {"probability": preferred(gaps, noise), "gap": gaps, "label": (gaps > 0).to(gaps.dtype)}[measure]
    return said.var(0, unbiased=False)


def select(uncertainty: Tensor, count: int, *, random_share: float = 0.0, seed: int = 0) -> list[int]:
    """Indices of `count` pairs: a share at random, the others those of the largest uncertainty; in rising order."""
    everything = list(range(len(uncertainty)))
    drawn = random.Random(seed).sample(everything, min(len(everything), math.ceil(random_share * count)))
    taken = set(drawn)
    ranked = [i for i in uncertainty.argsort(descending=True, stable=True).tolist() if i not in taken]
    return sorted([*drawn, *ranked[: max(0, count - len(drawn))]])
