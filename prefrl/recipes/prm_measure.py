"""What a process reward model is worth: temperature and threshold, figures beside baselines, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.markup import escape
from rich.table import Table as RichTable

from prefrl.config import PRMConfig
from prefrl.data.steps import Stepped
from prefrl.evaluate.blocks import Figure, Section, Table
from prefrl.evaluate.report import write_report
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.evaluate.sections import standard_sections
from prefrl.evaluate.step_quality import StepQuality, choose_threshold, evaluate_steps, known_first_error
from prefrl.model.process_model import ProcessModel, sigmoid
from prefrl.recipes.common import last_metrics
from prefrl.recipes.prm_baselines import baselines
from prefrl.recipes.prm_figures import auroc_figure, calibration_figure, first_error_figure
from prefrl.recipes.prm_fit import temperature_of


def finish(model: ProcessModel, held_out: Sequence[Stepped], config: PRMConfig) -> dict[str, float]:
    """Fit the temperature, then the threshold of highest first-error F1, on held-out solutions; what was fitted."""
    odds = model.step_log_odds(held_out)
    fitted = temperature_of(odds, held_out) if config.calibrate and held_out else {}
    if temperature := fitted.get("temperature", 0.0):
        model.divide(temperature)
        odds = [[x / temperature for x in own] for own in odds]
    threshold = config.threshold
    if not threshold:
        kept, scores = _whole(held_out, [[sigmoid(x) for x in own] for own in odds])
        threshold = choose_threshold(kept, scores) if any(map(_decided, kept)) else 0.5
    model.record = replace(model.record, threshold=threshold)
    return {**fitted, "threshold": threshold}


def measure(
    model: ProcessModel, train: Sequence[Stepped], held_out: Sequence[Stepped], test: Sequence[Stepped]
) -> StepQuality | None:
    """Figures on `test`, beside those of baselines fitted on `train` with thresholds of `held_out`.

    Solutions with a step that does not fit are left out, of all of them, and counted. None where nothing can be
    measured.
    """
    kept, scores = _whole(test, model.step_probabilities(test))
    if len(kept) < len(test):
        print(f"Measured: {len(kept)} of {len(test)} solutions; the others have steps that do not fit.")
    if not any(label is not None for one in kept for label in one.labels):
        print("Not measured: no step that fits has a label.")
        return None
    dev = list(held_out) or list(train)
    return evaluate_steps(kept, scores, model.record.threshold, baselines=baselines(train, dev, kept))


def quality_table(quality: StepQuality, measured_on: str) -> RichTable:
    """The figures as a table for the terminal."""
    table = RichTable("measure", "value", "note", title=f"On {measured_on} solutions", title_justify="left")
    for row in quality.rows():
        table.add_row(*map(escape, row))
    return table


def conclude(folder: RunFolder, quality: StepQuality | None, fitted: dict[str, float], measured_on: str) -> None:
    """Mark the run finished, write its report, and say where that is."""
    summary: dict[str, Any] = {"calibration": fitted}
    if quality is None:
        folder.finish({**last_metrics(folder, "train"), **summary})
        print(f"Report: {write_report(folder)}")
        return
    folder.finish({**quality.to_dict(), **summary, "measured_on": measured_on})
    report = standard_sections(
        read(folder.path),
        title=f"First errors are found with an F1 of {quality.f1.mean:.2f}",
        headline=[
            ("first-error F1", *_with_interval(quality.f1)),
            ("AUROC of steps", *_with_interval(quality.auroc)),
            ("balanced accuracy", *_with_interval(quality.balanced)),
        ],
        extra=[quality_section(quality, fitted, measured_on)],
    )
    print(f"Report: {write_report(folder, report)}")


def quality_section(quality: StepQuality, fitted: dict[str, float], measured_on: str) -> Section:
    """Figures and tables of a process reward model."""
    rows = [
        *quality.rows(),
        *((f"fitted: {name}", f"{value:.4g}", "on held-out solutions") for name, value in fitted.items()),
    ]
    return Section(
        "Process reward model",
        [
            Figure(first_error_figure(quality), "First errors", "F1 by the rule of ProcessBench, with 95% intervals."),
            Figure(
                auroc_figure(quality), "Steps", "Chance that a fine step scores above a wrong one; dashed: guessing."
            ),
            Figure(calibration_figure(quality), "Calibration", "On the dashed line a probability means what it says."),
            Table(("measure", "value", "note"), rows, f"Measured on the {measured_on} solutions."),
        ],
        "Intervals are of a bootstrap over problems. Baselines see lengths and positions, and no word.",
    )


def _whole(solutions: Sequence[Stepped], scores: Sequence[list[float]]) -> tuple[list[Stepped], list[list[float]]]:
    """The solutions of which all steps fit, and the scores of their steps."""
    kept = [(one, own) for one, own in zip(solutions, scores, strict=True) if len(own) == len(one.steps)]
    return [one for one, _ in kept], [own for _, own in kept]


def _decided(solution: Stepped) -> bool:
    return known_first_error(solution) is not None


def _with_interval(estimate: Any) -> tuple[str, str]:
    return f"{estimate.mean:.3f}", f"[{estimate.low:.3f}, {estimate.high:.3f}]"
