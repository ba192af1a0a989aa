"""What runs leave of their rewards: figures of every source, and what they are made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.evaluate.run_folder import read

TINY = Path(__file__).parents[2] / "configs" / "tiny"
CONSTRAINED = {
    "kind": "constraint", "name": "quality", "main": {"kind": "length_band", "low": 1, "high": 3, "unit": "characters"},
    "cost": {"kind": "regex", "pattern": r"\w"}, "limit": -1, "rate": 0.5,
}  # fmt: skip
REWARDS = [
    CONSTRAINED,
    {"kind": "tournament", "by": {"kind": "length_band", "low": 2, "high": 9, "unit": "characters"}, "weight": 0.5},
    {"kind": "regex", "pattern": r"\d", "audit": True},
]


@pytest.fixture
def prompts(write):
    return write("prompts.jsonl", [{"prompt": f"Say {i}", "answer": str(i)} for i in range(8)])


@pytest.mark.parametrize("command", ["rl", "rejection"])
def test_runs_measure_every_source_and_record_the_reward(command, model, prompts, tmp_path):
    config = {"rl": "grpo.yaml", "rejection": "rejection.yaml"}[command]
    flags = ["--policy.name", model, "--data.train", prompts, "--rewards", json.dumps(REWARDS), "--eval_samples", "2"]
    if command == "rejection":
        flags += ["--keep", "best"]
    assert main([command, str(TINY / config), "--output", str(tmp_path / "run"), *flags]) == 0
    run = read(tmp_path / "run")
    names = set(run.names())
    for source in ("quality", "tournament(length_band)", "regex"):
        assert {f"source/{source}/{key}" for key in ("mean", "std", "min", "max", "errors")} <= names
    shares = [run.series(f"source/{n}/share")[1] for n in ("quality", "tournament(length_band)")]
    assert all(sum(pair) == pytest.approx(1.0) for pair in zip(*shares, strict=True)) and shares[0]
    assert {"audit/mean", "quality/lambda", "quality/cost"} <= names
    assert run.series("quality/lambda")[1][0] > 0.0
    assert "Reward sources" in (run.path / "report.html").read_text()
    record = json.loads((run.path / "reward.json").read_text())
    assert record == json.loads((run.path / "checkpoints" / "final" / "reward.json").read_text())
    assert [weight for _, weight in record["reward"]["terms"]] == [1.0, 0.5, 0.0]
