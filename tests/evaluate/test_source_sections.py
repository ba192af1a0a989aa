"""The alarms on reward sources, and their part of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefrl.evaluate.alarms import find_alarms
from prefrl.evaluate.blocks import Figure, Section, Table
from prefrl.evaluate.run_folder import RunData
from prefrl.evaluate.source_metrics import late, sources
from prefrl.evaluate.source_sections import source_sections


def run(**columns: list[float | None]) -> RunData:
    lines: list[dict[str, Any]] = []
    for name, values in columns.items():
        lines += [{"step": i, "phase": "train", name: v} for i, v in enumerate(values) if v is not None]
    return RunData(path=Path("a"), status={"kind": "rl", "state": "finished"}, metrics=lines)


RISING = [0.1 * i for i in range(10)]
FALLING = RISING[::-1]
DOMINATED: dict[str, list[float | None]] = {
    "source/style/share": [0.1] * 5 + [0.95] * 5, "source/style/corr_total": [0.9] * 10,
    "source/right/share": [0.9] * 5 + [0.05] * 5, "source/right/corr_total": [0.3] * 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (DOMINATED, "95% of the variance of the advantage comes from the reward style"),
        ({"reward/corr_length": [0.0] * 5 + [0.6] * 5}, "reward and length correlate by 0.60"),
        ({"source/judge/errors": [0.0, 0.0, 0.05]}, "The reward judge failed on 1.7% of the answers"),
        ({"reward/mean": RISING, "audit/mean": FALLING}, "while the audit of the same answers fell by 0.1 a step"),
    ],
)  # fmt: skip
def test_each_alarm(metrics: dict[str, list[float | None]], words: str) -> None:
    (alarm,) = find_alarms(run(**metrics))
    assert words in alarm


@pytest.mark.parametrize(
    "metrics",
    [
        DOMINATED | {"source/style/share": [0.95] * 5 + [0.89] * 5},
        DOMINATED | {"source/style/share": [0.95] * 4},  # too few to tell
        DOMINATED | {"source/right/corr_total": [0.3] * 5 + [None] * 5},  # the other one is met by every answer
        DOMINATED | {"lambda": [0.01] * 10},  # a constraint that is kept
        {"reward/corr_length": [0.9] * 5 + [0.5] * 5},
        {"reward/corr_length": [-0.9] * 10},
        {"source/judge/errors": [0.01] * 10},
        {"reward/mean": RISING, "audit/mean": RISING},
        {"reward/mean": FALLING, "audit/mean": FALLING},
        {"reward/mean": RISING, "audit/mean": [0.5, 0.1, 0.9, 0.2, 0.8, 0.4, 0.6, 0.3, 0.7, 0.45]},
    ],
)
def test_no_alarm_at_or_below_the_limits(metrics: dict[str, list[float | None]]) -> None:
    assert find_alarms(run(**metrics)) == []


def test_late_is_the_second_half() -> None:
    assert late([9.0, 9.0, 1.0, 2.0, 3.0]) == 2.0
    assert late([9.0, float("nan"), 9.0, 1.0, 2.0, 3.0]) == 2.0
    assert late([1.0] * 4) != late([1.0] * 4)  # NaN


def test_the_table_has_a_row_for_every_source() -> None:
    data = run(**{
        "source/right/mean": [0.25, 0.5], "source/right/std": [0.5, 0.5], "source/right/min": [0.0, 0.0],
        "source/right/max": [1.0, 1.0], "source/right/errors": [0.0, 0.5], "source/right/share": [0.2, 0.4],
        "source/right/corr_total": [0.5, 0.75], "source/a/b/mean": [3.0, 4.0],
    })  # fmt: skip
    assert sources(data) == ["right", "a/b"]
    (section,) = source_sections(data)
    assert isinstance(section, Section)
    figure, table = section.blocks
    assert isinstance(figure, Figure) and isinstance(table, Table)
    assert table.rows[0] == ("right", "0.25 → 0.5", 0.5, 0.0, 1.0, "25.0%", "30%", 0.625, None, None)
    assert table.rows[1] == ("a/b", "3 → 4", None, None, None, None, None, None, None, None)
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert source_sections(run(**{"reward/mean": RISING})) == []
