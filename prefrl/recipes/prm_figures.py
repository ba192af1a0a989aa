"""Figures of a process reward model beside its baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefrl.evaluate import figures
from prefrl.evaluate.overoptimisation import Estimate
from prefrl.evaluate.step_quality import StepQuality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def first_error_figure(quality: StepQuality) -> Figure:
    """F1 of first errors, beside the baselines."""
    return _bars({name: one.f1 for name, one in _named(quality).items()}, "first-error F1")


def auroc_figure(quality: StepQuality) -> Figure:
    """AUROC of steps, beside the baselines."""
    return _bars({name: one.auroc for name, one in _named(quality).items()}, "AUROC of steps", reference=0.5)


def calibration_figure(quality: StepQuality) -> Figure:
    """Predicted probability that a step is fine against the share that was."""

    def draw(axes: Axes) -> None:
        predicted, observed = [b.predicted for b in quality.bins], [b.observed for b in quality.bins]
        most = max((b.count for b in quality.bins), default=1)
        axes.plot([0, 1], [0, 1], color=figures.GREY, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.plot(predicted, observed, color=figures.PALETTE[0], linewidth=1.5)
        axes.scatter(predicted, observed, [12 + 70 * b.count / most for b in quality.bins], color=figures.PALETTE[0])
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)

    return figures.plot(draw, xlabel="predicted: the step is fine", ylabel="observed", percent=True, grid="both")


def _named(quality: StepQuality) -> dict[str, StepQuality]:
    return {"this model": quality, **quality.baselines}


def _bars(found: dict[str, Estimate], xlabel: str, reference: float | None = None) -> Figure:
    intervals = [(one.low, one.high) for one in found.values()]
    means = [one.mean for one in found.values()]
    return figures.bars(list(found), means, intervals, reference=reference, percent=False, xlabel=xlabel)
