"""Partial credit: what a rollout gets that passes some of its checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prefrl.errors import ConfigError, did_you_mean

RULES = ("all", "fraction", "weighted", "scaled")


@dataclass(frozen=True, slots=True)
class Credit:
    """How passed checks become a score in [0, 1].

    all       1 when all pass, 0 otherwise
    fraction  passed / number of checks
    weighted  weight passed / weight of all
    scaled    1 when all pass, `alpha` x weight passed / weight of all otherwise: solving it counts for more than the
              last check does, as long as alpha <= 0.5

    Raises:
        ConfigError: another rule, or alpha outside [0, 1].
    """

    rule: str = "all"
    alpha: float = 0.5

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ConfigError(
                f"partial={self.rule!r}; expected one of {', '.join(RULES)}.{did_you_mean(self.rule, RULES)}"
            )
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"alpha={self.alpha}; expected a number from 0 to 1")

    def of(self, passed: Sequence[bool], weights: Sequence[float] | None = None) -> tuple[float, dict[str, float]]:
        """The score, and the parts `strict` (1 when all pass) and `fraction`, which do not depend on the rule.

        Raises:
            ValueError: no checks at all, which is no success; a weight that is negative, not finite or missing, or
                weights that add up to 0.
        """
        weights = [1.0] * len(passed) if weights is None else list(weights)
        if not passed or len(weights) != len(passed):
            raise ValueError(
                f"{len(passed)} checks and {len(weights)} weights; expected at least one, and as many of each"
            )
        whole = sum(weights)
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or whole <= 0:
            raise ValueError(f"weights {weights}; expected finite numbers of 0 or more, one of them above 0")
        strict = float(all(passed))
        parts = {"strict": strict, "fraction": sum(passed) / len(passed)}
        weighted = sum(weight for weight, ok in zip(weights, passed, strict=True) if ok) / whole
        scores = {
            "all": strict,
            "fraction": parts["fraction"],
            "weighted": weighted,
            "scaled": 1.0 if strict else self.alpha * weighted,
        }
        return scores[self.rule], parts
