"""How good probabilities of success are on held-out outcomes, and the two numbers that calibrate them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prefrl.errors import DataError
from prefrl.evaluate.margins import Bin, expected_calibration_error, mean, sigmoid, softplus
from prefrl.evaluate.overoptimisation import Estimate
from prefrl.evaluate.step_metrics import over_problems, probability_bins, step_auroc

_FLATTEST = 1e-3  # the least slope of a calibration: a model that ranks backwards says nothing, not the opposite


@dataclass(frozen=True, slots=True, kw_only=True)
class YesQuality:
    """Figures of probabilities over held-out outcomes in [0, 1].

    auroc               a success is ranked above a failure, ties counted half; outcomes above 1/2 are successes, and
                        NaN where all are of one kind. The interval resamples prompts
    ece, brier, nll     expected calibration error over ten bins, mean squared error, mean cross-entropy in nats
    explained_variance  `1 - Var(outcome - P) / Var(outcome)`: 0 for a constant
    base_rate           mean outcome; a constant at it has the NLL `base_nll`
    mass                mean yes/no mass, NaN where it was not measured; `under_floor` is the share below the floor
    """

    auroc: Estimate
    ece: float
    brier: float
    nll: float
    explained_variance: float
    base_rate: float
    base_nll: float
    mass: float
    under_floor: float
    total: int
    bins: tuple[Bin, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The figures without the bins."""
        figures = {name: value for name, value in asdict(self).items() if name not in ("bins", "auroc")}
        interval = {"auroc_low": self.auroc.low, "auroc_high": self.auroc.high}
        return {"auroc": self.auroc.mean, **interval, **figures}

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, value and note, as a table shows them."""
        return [
            ("AUROC", str(self.auroc), f"{self.total} histories; a success above a failure, 0.5 is guessing"),
            ("NLL", f"{self.nll:.4f}", f"nats; the base rate costs {self.base_nll:.4f}"),
            ("Brier", f"{self.brier:.4f}", f"the base rate costs {self.base_rate * (1 - self.base_rate):.4f}"),
            ("ECE", f"{self.ece:.4f}", "0 is calibrated"),
            ("explained variance", f"{self.explained_variance:.3f}", "1 is perfect, 0 a constant"),
            ("base rate", f"{self.base_rate:.3f}", "mean outcome"),
            ("yes/no mass", f"{self.mass:.3f}", f"{self.under_floor:.1%} of the histories are under the floor"),
        ]


def yes_quality(
    logits: Sequence[float],
    outcomes: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    masses: Sequence[float] = (),
    floor: float = 0.5,
) -> YesQuality:
    """Measure log-odds of success against outcomes.

    Args:
        logits: log-odds, as they are served.
        outcomes: what came of it, in [0, 1].
        groups: the prompt of each, which the interval resamples as a whole.
        masses: yes/no mass of each, where it is known.
        floor: mass below which an answer is counted as under the floor.

    Raises:
        DataError: nothing to measure, or an outcome or logit that cannot be.
    """
    _check(logits, outcomes)
    p = [sigmoid(z) for z in logits]
    rate = mean(outcomes)
    spread = mean([(y - rate) ** 2 for y in outcomes])
    errors = [y - q for y, q in zip(outcomes, p, strict=True)]
    bias = mean(errors)
    bins = probability_bins(np.array(p), np.array(outcomes))
    names = list(groups) if groups is not None else list(range(len(p)))
    good = np.array([float(y > 0.5) for y in outcomes])
    return YesQuality(
        auroc=over_problems(lambda weights: step_auroc(logits, good, weights), names),
        ece=expected_calibration_error(bins),
        brier=mean([e * e for e in errors]),
        nll=mean([softplus(z) - y * z for z, y in zip(logits, outcomes, strict=True)]),
        explained_variance=1.0 - mean([(e - bias) ** 2 for e in errors]) / spread if spread > 1e-12 else math.nan,
        base_rate=rate,
        base_nll=_entropy(rate),
        mass=mean(masses) if masses else math.nan,
        under_floor=mean([float(m < floor) for m in masses]) if masses else math.nan,
        total=len(p),
        bins=bins,
    )


def platt(logits: Sequence[float], outcomes: Sequence[float]) -> tuple[float, float]:
    """(temperature, bias) for which `sigmoid(logit / temperature + bias)` has the lowest cross-entropy.

    Outcomes are pulled in by one success and one failure (Platt 1999), so that separable data keep finite numbers. The
    slope stays positive.

    Raises:
        DataError: nothing to fit on.
    """
    from scipy.optimize import minimize

    _check(logits, outcomes)
    good = math.fsum(outcomes)
    bad = len(outcomes) - good
    top, bottom = (good + 1) / (good + 2), 1 / (bad + 2)
    targets = [bottom + (top - bottom) * y for y in outcomes]

    def loss(x: Sequence[float]) -> tuple[float, list[float]]:
        slope = math.exp(x[0])
        z = [slope * logit + x[1] for logit in logits]
        value = mean([softplus(a) - t * a for a, t in zip(z, targets, strict=True)])
        errors = [sigmoid(a) - t for a, t in zip(z, targets, strict=True)]
        return value, [slope * mean([e * logit for e, logit in zip(errors, logits, strict=True)]), mean(errors)]

    bound = -math.log(_FLATTEST)
    found = minimize(loss, [0.0, 0.0], jac=True, method="L-BFGS-B", bounds=[(-bound, bound), (None, None)])
    return math.exp(-float(found.x[0])), float(found.x[1])


def _entropy(rate: float) -> float:
    return -math.fsum(q * math.log(q) for q in (rate, 1.0 - rate) if q > 0)


def _check(logits: Sequence[float], outcomes: Sequence[float]) -> None:
    if not logits or len(logits) != len(outcomes):
        raise DataError(
            f"Got {len(logits)} log-odds and {len(outcomes)} outcomes; expected one each, and at least one."
        )
    wrong = [y for y in outcomes if not 0.0 <= y <= 1.0]
    if wrong or not all(map(math.isfinite, logits)):
        raise DataError(f"An outcome is {wrong[0] if wrong else 'right, a log-odds not finite'}; expected [0, 1].")
