"""`prefrl irl` with method maxent: what a run leaves, what it finds, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from prefrl.config import IRLConfig, RewardNetConfig
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.run_folder import read
from prefrl.parsing import parse
from prefrl.recipes import irl
from prefrl.rewards.inverse import tabular

ROOT = Path(__file__).parents[2]
STATES = RewardNetConfig(inputs=("state",), hidden=())


def run(tmp_path: Path, **changes: object) -> tuple[Path, dict[str, object]]:
    config = IRLConfig(
        method="maxent", environment="maze:4x4", discount=0.9, demonstrations="expert", net=STATES, steps=500
    )
    folder = irl.run(replace(config, output=str(tmp_path / "run"), threads=1, **changes))
    return folder.path, dict(read(folder.path).status["summary"])


def test_a_reward_is_found_and_carried_to_another_maze(tmp_path):
    path, summary = run(tmp_path)
    assert summary["converged"] is True
    assert summary["return"] == pytest.approx(13.848, abs=1e-3)
    assert summary["return_elsewhere"] == pytest.approx(11.909, abs=1e-3) == summary["best_elsewhere"]
    assert summary["reward_correlation"] == pytest.approx(1.0, abs=1e-6)
    assert "can be recovered up to a constant" in summary["identifiability"]
    saved = tabular.TabularReward.load(path / "checkpoints" / "final")
    assert np.ptp(saved.reward - tabular.named("maze:4x4").reward) < 1e-3
    assert saved.record["environment"] == "maze:4x4" and saved.record["horizon"] is None
    assert np.array_equal(load_file(path / "checkpoints" / "final" / "net.safetensors")["table"].numpy(), saved.reward)
    gradients = read(path).series("irl/gradient")[1]
    assert gradients[-1] <= 1e-7 < gradients[0]
    report = (path / "report.html").read_text()
    assert "Reward and policy" in report and "A reward for the exact visits of the expert" in report
    assert (path / "figures" / "reward-and-policy.svg").is_file()


def test_demonstrations_from_a_file_and_a_network(tmp_path):
    world = tabular.named("grid:5x5", horizon=15, discount=1.0)
    drawn = tabular.sample(world.mdp, tabular.solve(world.mdp, world.reward).policy, 300, seed=0)
    tabular.save_trajectories(tmp_path / "demonstrations.jsonl", drawn)
    path, summary = run(
        tmp_path,
        environment="grid:5x5",
        horizon=15,
        discount=1.0,
        demonstrations=str(tmp_path / "demonstrations.jsonl"),
        demonstrations_limit=250,
        net=RewardNetConfig(inputs=("state", "action"), hidden=(16,)),
        steps=30,
    )
    assert summary["converged"] is False and "return" not in summary
    assert read(path).series("irl/nll")[1][-1] < read(path).series("irl/nll")[1][0]
    saved = tabular.TabularReward.load(path / "checkpoints" / "final")
    assert saved.reward.shape == (25, 4) and saved.policy.shape == (15, 25, 4)
    assert "A reward for 250 demonstrations" in (path / "report.html").read_text()
    assert json.loads((path / "checkpoints" / "final" / "tabular_reward.json").read_text())["hidden"] == [16]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"environment": "CartPole-v1"}, ConfigError, "expected grid:ROWSxCOLUMNS"),
        ({"demonstrations": "expert:many", "horizon": 5}, ConfigError, "expert:200"),
        ({"demonstrations": "expert:10"}, ConfigError, "with a horizon"),
        ({"demonstrations": "nowhere.jsonl"}, DataError, "cannot be read"),
        ({"net": RewardNetConfig(inputs=("next_state",))}, ConfigError, "by state, or by state and action"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run_begins(tmp_path, changes, error, said):
    with pytest.raises(error, match=said):
        run(tmp_path, **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["irl/maxent.yaml", "tiny/irl_maxent.yaml"])
def test_the_configurations_run(tmp_path, name):
    given = [str(ROOT / "configs" / name), "--output", str(tmp_path / "run"), "--threads", "1"]
    config, _ = parse(IRLConfig, given, prog="irl")
    folder = irl.run(config)
    assert read(folder.path).status["summary"]["converged"] is True
