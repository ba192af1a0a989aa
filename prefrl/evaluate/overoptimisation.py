"""What happens to an independent measure while a reward is optimized: the over-optimisation of Gao et al.

The reward that is optimized is the proxy; the independent measure, never optimized, is the gold reward. Both are
looked at against the distance from the start, KL in nats an answer (arXiv 2210.10760). Two ways to go that distance:

    best-of-n  the best of n samples by the proxy: KL = log n - (n - 1) / n, no training needed
    rl         a run's evaluations: KL(policy || start) as measured
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from prefrl.errors import DataError
from prefrl.evaluate.files import to_plain
from prefrl.evaluate.statistics import bootstrap_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["best_of_n", "rl"]
Samples: TypeAlias = "Sequence[Sequence[float]] | NDArray[np.float64]"

_START = 0.01  # nats within which a policy is still the start
_LEAST_POINTS = 3  # a curve of two parameters says nothing of its fit to two points


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95% interval over prompts; the interval is NaN where there is one prompt only."""

    mean: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.low) else f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Point:
    """One distance: `at` is the n of best-of-n, or the step of a run."""

    at: int
    kl: float
    proxy: Estimate
    gold: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`d (a - b d)` for best-of-n, `d (a - b log d)` for RL, with d = sqrt(KL): the gain over the start.

    r2      1 - SS(residuals) / SS(about the mean); NaN where the gains do not vary
    points  that were fitted; the start is the origin and none of them
    farthest  the largest KL among them
    """

    kind: Kind
    a: float
    b: float
    r2: float
    points: int
    farthest: float

    def gain(self, kl: float) -> float:
        """The fitted gain at a KL of 0 or more."""
        d = math.sqrt(kl)
        bend = d if self.kind == "best_of_n" else math.log(d) if d > 0 else 0.0
        return d * (self.a - self.b * bend)

    @property
    def peak(self) -> tuple[float, float] | None:
        """(KL, gain) at the top of the curve: d* = a / 2b, or exp(a / b - 1); None for a curve without a top."""
        if self.b <= 0:
            return None
        if self.kind == "best_of_n":
            return ((self.a / (2 * self.b)) ** 2, self.a**2 / (4 * self.b)) if self.a > 0 else None
        exponent = self.a / self.b - 1
        if exponent > 50:  # no run goes anywhere near e^100 nats
            return None
        return math.exp(2 * exponent), self.b * math.exp(exponent)

    @property
    def form(self) -> str:
        """The formula."""
        return "d (a - b d)" if self.kind == "best_of_n" else "d (a - b log d)"

    def __str__(self) -> str:
        text = f"{self.form}, a = {self.a:.3g}, b = {self.b:.3g}, R2 = {self.r2:.3f}, "
        if self.peak is None:
            return text + "no peak"
        beyond = f", beyond the measured {self.farthest:.3g}" if self.peak[0] > self.farthest else ""
        return text + f"peak of {self.peak[1]:.3g} at {self.peak[0]:.3g} nats{beyond}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Proxy and gold reward against KL, the start first.

    gold       name of the gold measure
    stds       standard deviations of proxy and gold over the start's answers, in which gains can be compared
    prompts    that every point is a mean over; 0 where a run does not say
    left_out   prompts with too few scored samples for the largest n: in no point
    unscored   samples without a proxy or a gold reward: in no point
    """

    kind: Kind
    points: tuple[Point, ...]
    gold: str = "gold"
    stds: tuple[float, float] = (math.nan, math.nan)
    prompts: int = 0
    left_out: int = 0
    unscored: int = 0
    fits: Mapping[str, Fit | str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fits", {name: self._fit(name) for name in ("proxy", "gold")})

    def _fit(self, name: str) -> Fit | str:
        kls = [point.kl for point in self.points]
        try:
            return fit_curve(kls, [getattr(point, name).mean for point in self.points], self.kind)
        except DataError as error:
            return str(error)

    @property
    def peak(self) -> Point:
        """Where the gold reward is highest."""
        return max(self.points, key=lambda point: point.gold.mean)

    @property
    def falls(self) -> bool:
        """Whether gold has fallen from its peak while the proxy rose, and each interval excludes the other's mean."""
        peak, last = self.peak, self.points[-1]
        fallen = last.gold.high < peak.gold.mean and last.gold.mean < peak.gold.low
        return fallen and last.kl > peak.kl and last.proxy.mean > peak.proxy.mean

    def rows(self) -> list[tuple[str, str, str, str]]:
        """n or step, KL, proxy and gold, as a table shows them."""
        return [(str(p.at), f"{p.kl:.2f}", str(p.proxy), str(p.gold)) for p in self.points]

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Headings of `rows`."""
        return ("n" if self.kind == "best_of_n" else "step", "KL", "proxy", self.gold)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON has it; a NaN is None."""

        def figures(of: Estimate) -> dict[str, float]:
            return {"mean": of.mean, "low": of.low, "high": of.high}

        points = [{"at": p.at, "kl": p.kl, "proxy": figures(p.proxy), "gold": figures(p.gold)} for p in self.points]
        counts = {"prompts": self.prompts, "left_out": self.left_out, "unscored": self.unscored}
        plain: dict[str, Any] = to_plain({"kind": self.kind, "gold": self.gold, **counts, "points": points})
        return plain | {"fits": {name: _fit_dict(fit) for name, fit in self.fits.items()}}


def _fit_dict(fit: Fit | str) -> dict[str, Any]:
    if isinstance(fit, str):
        return {"not_fitted": fit}
    peak = dict(zip(("kl", "gain"), fit.peak, strict=True)) if fit.peak else None
    figures: dict[str, Any] = to_plain({"a": fit.a, "b": fit.b, "r2": fit.r2, "points": fit.points, "peak": peak})
    return figures


def best_of_n_kl(n: int) -> float:
    """`log n - (n - 1) / n`: KL(best-of-n || start) where no two samples tie, and an upper bound where some do."""
    return math.log(n) - (n - 1) / n


def powers(largest: int) -> list[int]:
    """1, 2, 4, ... and the largest itself."""
    return sorted({2**k for k in range(largest.bit_length())} | {largest})


def best_of_n(proxy: Samples, gold: Samples, ns: Sequence[int] = (), *, name: str = "gold") -> Frontier:
    """Proxy and gold reward of the best of n by the proxy, for every n, from N >= n samples a prompt.

    Unbiased: the exact mean over all n-subsets of a prompt's samples, so no resampling noise. Samples that tie in the
    proxy are equally likely to be taken. Intervals are of a bootstrap over prompts.

    Args:
        proxy: rewards of each prompt's samples, by which the best is chosen; NaN where there is none.
        gold: the independent rewards of the same samples; NaN where there is none.
        ns: every n; empty takes 1, 2, 4, ... and the number of scored samples that nine prompts of ten have.
        name: of the gold measure.

    Raises:
        DataError: proxy and gold do not match, n is below 1, or no prompt has samples enough.
    """
    prompts = _scored(proxy, gold)
    counts = sorted(len(p) for p, _ in prompts)
    ns = sorted(set(ns)) or powers(max(1, counts[len(counts) // 10]))
    if ns[0] < 1:
        raise DataError(f"n is {ns[0]}; expected 1 or more.")
    enough = [(p, g) for p, g in prompts if len(p) >= ns[-1]]
    if not enough:
        raise DataError(f"The best of {ns[-1]} needs as many scored samples of a prompt; the most is {counts[-1]}.")
    tables = [_best(p, g, ns) for p, g in enough]
    points = tuple(
        Point(n, best_of_n_kl(n), *(estimate([table[side][k] for table in tables]) for side in (0, 1)))
        for k, n in enumerate(ns)
    )
    return Frontier(
        kind="best_of_n",
        points=points,
        gold=name,
        stds=(spread([p for p, _ in enough]), spread([g for _, g in enough])),
        prompts=len(enough),
        left_out=len(prompts) - len(enough),
        unscored=sum(map(len, proxy)) - sum(counts),
    )


def selection_weights(samples: int, n: int) -> NDArray[np.float64]:
    """Chance that the i-th smallest of N is the largest of n drawn without replacement: C(i-1, n-1) / C(N, n), (N,).

    In log space by `w_{i-1} / w_i = (i - n) / (i - 1)` from `w_N = n / N`: finite and exact for any N and n.
    """
    import numpy as np

    places = np.arange(samples, n, -1.0)
    logs = math.log(n / samples) + np.concatenate([[0.0], np.cumsum(np.log((places - n) / (places - 1)))])
    return np.concatenate([np.zeros(n - 1), np.exp(logs[::-1])])


def _best(proxy: NDArray[np.float64], gold: NDArray[np.float64], ns: Sequence[int]) -> NDArray[np.float64]:
    """Mean proxy and gold of the best of every n of one prompt's samples, (2, number of ns)."""
    import numpy as np

    values, member, counts = np.unique(proxy, return_inverse=True, return_counts=True)
    golds = np.bincount(member, gold) / counts
    starts = np.cumsum(counts) - counts
    chances = np.stack([np.add.reduceat(selection_weights(len(proxy), n), starts) for n in ns])
    return np.stack([chances @ values, chances @ golds])


def _scored(proxy: Samples, gold: Samples) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Proxy and gold of every prompt's samples that have both."""
    import numpy as np

    if len(proxy) != len(gold) or not len(proxy):
        raise DataError(f"Got samples of {len(proxy)} and {len(gold)} prompts; expected the same, and one at least.")
    kept = []
    for place, (p, g) in enumerate(zip(proxy, gold, strict=True)):
        if len(p) != len(g):
            raise DataError(f"Prompt {place} has {len(p)} proxy and {len(g)} gold rewards; expected one each a sample.")
        pair = np.stack([np.asarray(p, dtype=np.float64), np.asarray(g, dtype=np.float64)])
        pair = pair[:, np.isfinite(pair).all(axis=0)]
        kept.append((pair[0], pair[1]))
    return kept


def estimate(values: Sequence[float], groups: Sequence[Hashable] | None = None) -> Estimate:
    """Mean with its interval; values of the same group, a prompt, are resampled together."""
    mean = math.fsum(values) / len(values)
    if len(set(range(len(values)) if groups is None else groups)) < 2:
        return Estimate(mean)
    return Estimate(mean, *bootstrap_mean([float(value) for value in values], groups=groups))


def spread(values: Sequence[NDArray[np.float64]] | Sequence[Sequence[float]]) -> float:
    """Standard deviation of all values together."""
    import numpy as np

    return float(np.concatenate([np.asarray(v, dtype=np.float64) for v in values]).std())


def fit_curve(kls: Sequence[float], rewards: Sequence[float], kind: Kind) -> Fit:
    """The curve of Gao et al. through rewards minus that of the start, by least squares (linear in a and b).

    Args:
        kls: distances; the first is the start's.
        rewards: at every distance.
        kind: `d (a - b d)` for best_of_n, `d (a - b log d)` for rl.

    Raises:
        DataError: the first point is not the start, or fewer than 3 different distances follow it.
    """
    import numpy as np

    if not kls or abs(kls[0]) > _START:
        got = f"the first point is {kls[0]:.3g} nats away" if kls else "there are no points"
        raise DataError(f"Not fitted because {got}; expected the start, at a KL of 0.")
    d = np.sqrt([kl for kl in kls if kl > _START])
    if len(set(d.tolist())) < _LEAST_POINTS:
        raise DataError(
            f"Not fitted because there are {len(set(d.tolist()))} distances from the start; "
            f"expected {_LEAST_POINTS} or more."
        )
    gains = np.array([r - rewards[0] for kl, r in zip(kls, rewards, strict=True) if kl > _START])
    design = np.stack([d, -d * (d if kind == "best_of_n" else np.log(d))], axis=1)
    (a, b), *_ = np.linalg.lstsq(design, gains)
    total = float(((gains - gains.mean()) ** 2).sum())
    missed = float(((gains - design @ [a, b]) ** 2).sum())
    r2 = 1 - missed / total if total > 0 else math.nan
    return Fit(kind=kind, a=float(a), b=float(b), r2=r2, points=len(d), farthest=float(d.max() ** 2))
