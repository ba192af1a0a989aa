"""The report's section on a reward: accuracy beside baselines and by subset, calibration, margins, length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Block, Figure, Section, Table
from prefrl.evaluate.length_report import LengthReport
from prefrl.evaluate.quality_tables import CAPTION, LENGTH_COLUMNS, SUBSET_COLUMNS, rows, subset_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

    from prefrl.evaluate.reward_quality import RewardQuality

_SHOWN = 40  # bars of subsets in a figure; the table has all


def quality_section(
    quality: RewardQuality, *, before: RewardQuality | None = None, title: str = "Reward model", lead: str = ""
) -> Section:
    """A reward's figures on held-out pairs; `before` is the same reward before it was calibrated."""
    blocks: list[Block] = [
        Figure(accuracy_figure(quality), "Accuracy on held-out pairs", "With 95% intervals; dashed: guessing."),
        Figure(
            calibration_figure(quality, before), "Calibration", "On the dashed line a probability means what it says."
        ),
        Figure(margin_figure(quality), "Margins", "Score differences; right of 0 the pair is ordered as people did."),
        Figure(score_figure(quality), "Scores", "Only differences within a prompt mean anything."),
    ]
    if quality.length is not None:
        caption = "Where the two lie apart, the reward reads length. The ratio of the longer side to the shorter one."
        blocks.insert(2, Figure(length_figure(quality.length), "Accuracy by length", caption))
    if quality.subsets:
        caption = "With 95% intervals; dashed: guessing." + (
            f" The {_SHOWN} largest of {len(quality.subsets)}." if len(quality.subsets) > _SHOWN else ""
        )
        blocks.insert(1, Figure(subset_figure(quality), "Accuracy by subset", caption))
    blocks.append(Table(("measure", "value", "note"), rows(quality), CAPTION))
    if quality.subsets or quality.unmeasured:
        note = "Balanced: every length ratio and both sides alike. Longer wins: that baseline on the same pairs."
        blocks.append(Table(SUBSET_COLUMNS, subset_rows(quality), note))
    if quality.length is not None:
        note = (
            "Accuracy by the ratio of the lengths. Balanced: the mean of both sides, 50% for a reward of length alone."
        )
        blocks.append(Table(LENGTH_COLUMNS, quality.length.stratum_rows(), note))
    return Section(title, blocks, lead)


def accuracy_figure(quality: RewardQuality) -> MatplotlibFigure:
    """Accuracy beside that of the baselines, with intervals."""
    labels = ["this reward", *(b.name for b in quality.baselines)]
    values = [quality.accuracy.rate, *(b.accuracy for b in quality.baselines)]
    intervals = [quality.accuracy.interval, *(b.interval for b in quality.baselines)]
    return figures.bars(labels, values, intervals, reference=0.5, xlabel="accuracy")


def subset_figure(quality: RewardQuality) -> MatplotlibFigure:
    """Accuracy on every subset, with intervals."""
    largest = sorted(quality.subsets.items(), key=lambda item: -item[1].accuracy.total)[:_SHOWN]
    shown = sorted(largest, key=lambda item: -item[1].accuracy.rate)
    return figures.bars(
        [f"{name} ({part.accuracy.total})" for name, part in shown],
        [part.accuracy.rate for _, part in shown],
        [part.accuracy.interval for _, part in shown],
        reference=0.5,
        coloured=len(shown),
        xlabel="accuracy",
    )


def calibration_figure(quality: RewardQuality, before: RewardQuality | None = None) -> MatplotlibFigure:
    """Predicted against observed share of pairs, and how many predictions stand behind each point."""
    bins = quality.calibration
    others = {}
    if before is not None:
        others["before"] = ([b.predicted for b in before.calibration], [b.observed for b in before.calibration])
    return figures.calibration(
        [b.predicted for b in bins], [b.observed for b in bins], [b.count for b in bins], others=others
    )


def margin_figure(quality: RewardQuality) -> MatplotlibFigure:
    """Histogram of the margins: of decided pairs, and of tied ones where there are any."""
    groups = {"one side preferred": quality.margins}
    if quality.tied is not None and quality.tied.margins:
        groups["tied"] = list(quality.tied.margins)
    return figures.histogram(groups, xlabel="score(chosen) - score(rejected)")


def score_figure(quality: RewardQuality) -> MatplotlibFigure:
    """Histogram of the scores of chosen and rejected completions."""
    scores = {"chosen": list(quality.chosen_scores), "rejected": list(quality.rejected_scores)}
    return figures.histogram(scores, xlabel="score")


def length_figure(report: LengthReport) -> MatplotlibFigure:
    """Accuracy by the ratio of the lengths, apart where the chosen side is the shorter and where it is the longer."""

    def draw(axes: Axes) -> None:
        for index, side in enumerate(("shorter", "longer")):
            shares = [(place, getattr(s, side)) for place, s in enumerate(report.strata)]
            kept = [(place + 0.12 * (2 * index - 1), share) for place, share in shares if share.total]
            places, rates = [place for place, _ in kept], [share.rate for _, share in kept]
            colour = figures.PALETTE[index]
            axes.plot(places, rates, "o-", color=colour, linewidth=1.0, markersize=4.5, label=f"chosen is {side}")
            for place, share in kept:
                axes.plot([place, place], share.interval, color=colour, linewidth=1.3)
        axes.axhline(0.5, color=figures.MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_ylim(0, 1.02)
        axes.set_xticks(range(len(report.strata)), [s.name.replace(" to ", "\N{EN DASH}") for s in report.strata])
        figures.legend(axes)

    return figures.plot(draw, xlabel="longer length / shorter length", ylabel="accuracy", percent=True)
