"""Alarms ring when they should and only then."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from prefrl.evaluate.alarms import ends, find_alarms
from prefrl.evaluate.run_folder import RunData


def run(train: dict[str, list[float]], evaluation: dict[str, list[float]] | None = None, **status: Any) -> RunData:
    lines: list[dict[str, Any]] = []
    for phase, columns in (("train", train), ("eval", evaluation or {})):
        for name, values in columns.items():
            lines += [{"step": i, "phase": phase, name: v} for i, v in enumerate(values)]
    return RunData(path=Path("a"), status={"kind": "rl", "state": "finished"} | status, metrics=lines)


RISING = [0.1 * i for i in range(10)]
FALLING = [-10.0 - i for i in range(10)]


def test_a_healthy_run_is_quiet() -> None:
    healthy = {
        "reward/mean": RISING, "groups/mixed": [0.5] * 10, "stop/length": [0.1] * 10, "errors": [0.0] * 10,
        "length/mean": [30.0] * 10, "chosen_logp": RISING, "rejected_logp": FALLING,
    }  # fmt: skip
    assert find_alarms(run(healthy, {"accuracy": [0.4, 0.6]})) == []
    assert find_alarms(run({})) == []


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"groups/mixed": [0.5, 0.05]}, "only 5% of the groups"),
        ({"stop/length": [0.1, 0.75]}, "cut off 75% of the last answers"),
        ({"errors": [0.0, 0.25, 0.125]}, "2 steps, at worst 25%"),
        ({"length/mean": [20.0, 40.0]}, "from 20 to 40 tokens"),
        ({"length/mean": [40.0, 20.0]}, "from 40 to 20 tokens"),
        (
            {"chosen_logp": FALLING, "rejected_logp": [3.0 * x for x in FALLING]},
            "chosen answers fell from -10.0 to -19.0, and that of rejected ones from -30.0 to -57.0",
        ),
    ],
)
def test_each_alarm(metrics: dict[str, list[float]], words: str) -> None:
    (alarm,) = find_alarms(run(metrics))
    assert words in alarm


def test_episodes_of_control_may_be_of_any_length_and_are_called_so() -> None:
    metrics = {"return/mean": RISING, "length/mean": [20.0, 400.0], "reward/corr_length": [0.9] * 10}
    assert find_alarms(run(metrics | {"stop/length": [1.0] * 10})) == []
    (alarm,) = find_alarms(run(metrics | {"errors": [0.25]}))
    assert alarm.startswith("Some episodes could not be scored")
    without = {name: values for name, values in metrics.items() if name != "return/mean"}
    assert len(find_alarms(run(without))) == 2


@pytest.mark.parametrize("kind", ["control", "fragments"])
def test_a_run_of_control_speaks_of_episodes_where_its_environment_pays_nothing(kind: str) -> None:
    metrics = {"reward/mean": RISING, "length/mean": [20.0, 400.0], "errors": [0.25], "stop/length": [1.0] * 10}
    first, second = find_alarms(run(metrics, {"reward/mean": [0.5, 0.4]}, kind=kind))
    assert first.startswith("Some episodes could not be scored")
    assert "on held-out starts did not" in second and "remembering its starts" in second


def test_log_probs_of_answers_sampled_anew_may_fall() -> None:
    metrics = {"chosen_logp": FALLING, "rejected_logp": FALLING, "reward/mean": [0.5] * len(FALLING)}
    assert find_alarms(run(metrics)) == []


def test_rising_reward_with_flat_independent_success_is_named() -> None:
    (alarm,) = find_alarms(run({"reward/mean": RISING}, {"win_rate": [0.5, 0.48], "accuracy": [0.1, 0.9]}))
    assert "rose from 0 to 0.9 while win rate on held-out prompts did not (0.5 to 0.48)" in alarm
    assert "reward/mean on held-out" in find_alarms(run({"reward/mean": RISING}, {"reward/mean": [0.4, 0.4]}))[0]
    noise = [0.5, 0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6]
    assert find_alarms(run({"reward/mean": noise}, {"win_rate": [0.5, 0.4]})) == []


def test_endings_and_damage_are_told() -> None:
    assert "failed: OutOfMemory" in find_alarms(run({}, state="failed", error="OutOfMemory"))[0]
    assert "has not finished" in find_alarms(run({}, state="running", pid=-1))[0]
    assert find_alarms(run({}, state="running", pid=os.getpid())) == []  # the run itself asks
    damaged = RunData(
        path=Path("a"),
        status={"state": "finished"},
        metrics=[{"step": 0, "phase": "train", "loss": None, "nonfinite": ["loss"]}],
        skipped_metrics=1,
    )
    assert find_alarms(damaged) == [
        "loss was NaN or infinite at 1 step. Curves have a gap there.",
        "1 unreadable line of metrics or samples left out; a killed run leaves one.",
    ]


def test_ends_are_means_of_tenths_and_skip_nan() -> None:
    assert ends([1.0, 3.0, *[0.0] * 16, 4.0, 8.0]) == (2.0, 6.0, 2)
    assert ends([math.nan, 1.0, 2.0]) == (1.0, 2.0, 1)
    first, last, size = ends([math.nan])
    assert math.isnan(first) and math.isnan(last) and size == 0
