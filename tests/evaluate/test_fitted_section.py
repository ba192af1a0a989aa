"""The report's section on what was fitted beside the weights, from the summary of a run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prefrl.evaluate import figures
from prefrl.evaluate.blocks import Figure, Section, Table, Warnings
from prefrl.evaluate.fitted_section import fitted_sections
from prefrl.evaluate.quality_sections import score_figure
from prefrl.evaluate.report import write_run_report
from prefrl.evaluate.reward_quality import evaluate_scores
from prefrl.evaluate.run_folder import RunFolder
from prefrl.evaluate.sections import standard_sections
from prefrl.evaluate.shares import amount, number

EVE = {"name": "eve", "alpha": -0.25, "labels": 40, "agreement": 0.125, "flagged": True}
ANN = {"name": "ann", "alpha": 1.5, "labels": 50, "agreement": None, "flagged": False}
SUMMARY = {
    "fitted": {"temperature": 2.0, "length_slope": -0.0125, "tie_model": "davidson", "tie_parameter": 0.5},
    "probabilities": {"raw": {"nll": 0.75, "ece": 0.2}, "calibrated": {"nll": 0.625, "ece": None}},
    "annotators": [EVE, ANN],
    "measured_on": "test",
    "tie_shares": {"predicted": 0.125, "observed": 0.1, "pairs": 30},
    "ensemble": {"members": 4, "spread": 0.3, "accuracy_by_spread": [[8, 10], [6, 10], [0, 0]]},
}


def tables(summary: dict[str, Any]) -> list[Table]:
    (section,) = fitted_sections(summary)
    return [block for block in section.blocks if isinstance(block, Table)]


def test_everything_fitted_has_a_row() -> None:
    fitted, annotators = tables(SUMMARY)
    assert {name.strip(): value for name, value, _ in fitted.rows} == {
        "temperature": "2.000",
        "NLL": "0.750 → 0.625",
        "ECE": "0.200 → undefined",
        "tie parameter": "0.500",
        "ties predicted": "12.5%, observed 10.0%",
        "length correction": "-0.013",
        "members": "4",
        "spread": "0.300",
        "accuracy, surest third": "80.0%",
        "accuracy, middle third": "60.0%",  # the last third has no pairs
    }
    assert "of the test pairs" in fitted.caption
    assert annotators.columns == ("annotator", "alpha", "labels", "agreement", "flagged")
    assert list(annotators.rows) == [("eve", -0.25, 40, "12.5%", "yes"), ("ann", 1.5, 50, "none decided", "")]


def test_flagged_annotators_are_a_warning() -> None:
    (section,) = fitted_sections(SUMMARY)
    (warnings,) = (block for block in section.blocks if isinstance(block, Warnings))
    assert len(warnings.messages) == 1 and "Annotator eve has reliability -0.250 from 40" in warnings.messages[0]


def test_reliabilities_that_were_not_learnt_are_left_out() -> None:
    *_, annotators = tables({"fitted": {}, "annotators": [ANN | {"alpha": 1.0}]})
    assert annotators.columns == ("annotator", "labels", "agreement", "flagged") and "Alpha" not in annotators.caption


def test_what_was_not_fitted_has_no_row() -> None:
    (fitted,) = tables({"fitted": {}})
    assert [row[:2] for row in fitted.rows] == [("temperature", "none")]
    assert fitted_sections({"accuracy": 0.5}) == []


@pytest.mark.parametrize(("temperature", "curves"), [(2.0, ["before", "this reward"]), (None, ["this reward"])])
def test_the_report_of_a_run_shows_it(
    temperature: float | None, curves: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create(tmp_path / "run", "reward", {})
    run.finish(SUMMARY | {"fitted": {"temperature": temperature} if temperature else {}})
    caught = []
    monkeypatch.setattr(
        "prefrl.evaluate.report.standard_sections",
        lambda *given, **more: caught.append(standard_sections(*given, **more)) or caught[-1],
    )
    quality = evaluate_scores([1.0, 2.0, 0.5], [0.0, 3.0, 0.1])
    page = write_run_report(run, quality).read_text(encoding="utf-8")
    sections = {block.title: block for block in caught[0].blocks if isinstance(block, Section)}
    assert list(sections) == ["Reward model", "What was fitted", "How it was run"]
    blocks = sections["Reward model"].blocks
    drawn = next(b.figure for b in blocks if isinstance(b, Figure) and b.title == "Calibration")
    lines = {line.get_label(): line for line in drawn.axes[0].lines}
    assert list(lines) == ["perfect", *curves]
    if temperature:  # before, the margins were twice as large
        wanted = [b.predicted for b in evaluate_scores([2.0, 4.0, 1.0], [0.0, 6.0, 0.2]).calibration]
        assert list(lines["before"].get_xdata()) == pytest.approx(wanted)
    assert "Annotator eve" in page


def test_an_old_run_without_its_pairs_shows_it_too(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "reward", {})
    run.finish({name: SUMMARY[name] for name in ("fitted", "annotators", "probabilities", "measured_on")})
    page = write_run_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "What was fitted" in page and "0.750 → 0.625" in page and "Reward model" not in page


def test_tiny_figures_keep_their_sign_and_lose_that_of_zero() -> None:
    assert [number(value) for value in (-1e-5, 0.0, -0.25)] == ["0.000", "0.000", "-0.250"]
    assert [amount(value) for value in (-2e-5, 0.0, -0.25)] == ["-2.0e-05", "0.000", "-0.250"]
    quality = evaluate_scores([1e-5, 0.0], [0.0, 3e-5])
    ((_, value, note),) = (row for row in quality.rows() if row[0] == "mean margin")
    assert value == "-1.0e-05" and "0.000" not in note


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 1e5])
def test_labels_of_scores_do_not_overlap(scale: float) -> None:
    quality = evaluate_scores([0.91 * scale, 0.42 * scale], [-0.83 * scale, 0.05 * scale])
    drawn = score_figure(quality)
    figures.to_svg(drawn)
    (axes,) = drawn.axes
    low, high = axes.get_xlim()
    shown = [t for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high and t.get_text()]
    boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) >= 3
    assert all(left.x1 + 4 < right.x0 for left, right in pairwise(boxes))
