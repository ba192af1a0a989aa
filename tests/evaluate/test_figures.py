"""Figures: what they show, and that drawing leaves the caller's matplotlib alone."""

from __future__ import annotations

import base64
import math
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from prefrl.errors import RunError
from prefrl.evaluate import figures


def test_short_curves_show_every_point_and_gaps() -> None:
    figure = figures.curves({"reward": ([0, 1, 2], [0.5, None, 0.75])}, ylabel="reward")
    (line,) = figure.axes[0].lines
    values = list(line.get_ydata())
    assert values[0] == 0.5 and math.isnan(values[1]) and values[2] == 0.75
    assert line.get_marker() == "o" and figure.axes[0].get_legend() is None


def test_long_curves_are_smoothed_over_the_raw_line() -> None:
    noisy = [float(i % 2) for i in range(40)]
    raw, smooth = figures.curves({"loss": (range(40), noisy)}).axes[0].lines
    assert list(raw.get_ydata()) == noisy
    assert max(smooth.get_ydata()[20:]) < 0.7
    (only,) = figures.curves({"loss": (range(40), noisy)}, smooth=0.0).axes[0].lines
    assert list(only.get_ydata()) == noisy


def test_smoothing_by_hand() -> None:
    assert figures.smoothed([1.0, 0.0], 0.5) == pytest.approx([1.0, 1 / 3])
    skipped = figures.smoothed([math.nan, 4.0, math.nan, 4.0], 0.9)
    assert math.isnan(skipped[0]) and math.isnan(skipped[2])
    assert [skipped[1], skipped[3]] == pytest.approx([4.0, 4.0])


def test_many_and_long_names_still_fit() -> None:
    lines = {f"a rather long name of a reward part {i}": ([0, 1], [0.0, i]) for i in range(12)}
    figure = figures.curves(lines)
    assert figures.to_svg(figure).count("a rather long name") == 12
    assert figure.get_figheight() > 4
    assert len({(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}) == 12


def test_stacked_shares_reach_one_and_a_single_step_is_seen() -> None:
    figure = figures.stacked([0, 1], {"mixed": [0.25, 0.5], "all fail": [0.75, 0.5]})
    tops = [max(y for _, y in area.get_paths()[0].vertices) for area in figure.axes[0].collections]
    assert tops == pytest.approx([0.5, 1.0])
    single = figures.stacked([3], {"mixed": [0.25], "all fail": [0.75]})
    assert len(single.axes[0].collections[0].get_paths()[0].vertices) > 2


def test_histograms_share_bins_and_count_what_is_not_finite() -> None:
    figure = figures.histogram({"chosen": [0.0, 1.0, math.nan], "rejected": [0.5]}, bins=4)
    legend = figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["chosen (1 not finite)", "rejected"]
    assert figures.histogram({"none": []}).axes


def test_bars_show_values_and_intervals() -> None:
    figure = figures.bars(["ours", "other"], [0.75, 0.5], [(0.6, 0.9), (0.4, 0.6)], reference=0.5)
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.75, 0.5]
    assert [text.get_text() for text in axes.texts] == ["75%", "50%"]
    assert list(axes.lines[0].get_xdata()) == [0.6, 0.9]


def test_the_frontier_marks_the_last_point() -> None:
    axes = figures.kl_reward({"policy": ([0.0, 1.0, 2.0], [0.1, 0.4, 0.5])}).axes[0]
    assert axes.collections[-1].get_offsets().tolist() == [[2.0, 0.5]]


def test_svg_is_reproducible_and_has_a_dark_form() -> None:
    def drawn() -> str:
        return figures.to_svg(figures.curves({"a": ([0, 1], [0.0, 1.0])}))

    svg = drawn()
    assert svg == drawn() and svg.startswith("<svg")
    assert "<text" in svg and "DejaVu" not in svg and "<metadata" not in svg
    dark = figures.for_dark_pages(svg)
    assert figures.PALETTE[0] in svg and figures.PALETTE[0] not in dark and figures.MUTED not in dark
    uri = figures.to_data_uri(figures.curves({"a": ([0, 1], [0.0, 1.0])}), dark=True)
    assert base64.b64decode(uri.removeprefix("data:image/svg+xml;base64,")).decode() == dark


def test_save_writes_svg_and_png_at_twice_the_resolution(tmp_path: Path) -> None:
    figure = figures.curves({"a": ([0, 1], [0.0, 1.0])})
    assert figures.save(figure, tmp_path / "a.svg").read_text().startswith("<svg")
    png = figures.save(figure, tmp_path / "a.png").read_bytes()
    assert png.startswith(b"\x89PNG") and int.from_bytes(png[16:20], "big") == 800  # 4 inches at 200 dpi
    with pytest.raises(RunError, match="Cannot write"):
        figures.save(figure, tmp_path / "missing" / "a.svg")


def test_drawing_leaves_global_settings_alone() -> None:
    figures.to_svg(figures.calibration([0.25, 0.75], [0.25, 0.75], [2, 2], title="t"))
    ours = {"font.size", "svg.hashsalt", "axes.spines.top", "figure.facecolor"}
    assert {matplotlib.rcParams[k] == matplotlib.rcParamsOrig[k] for k in ours} == {True}


def test_importing_is_light() -> None:
    code = (
        "import sys, prefrl.evaluate.report, prefrl.evaluate.reward_quality, prefrl.evaluate.progress;"
        "heavy = {'torch', 'transformers', 'matplotlib', 'sklearn', 'scipy', 'numpy', 'jinja2', 'rich'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
