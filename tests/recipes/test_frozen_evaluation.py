"""Evaluations do not change what is trained, also where the reward keeps running statistics."""

from __future__ import annotations

from prefrl.cli import main
from prefrl.evaluate.run_folder import read


def test_more_evaluations_change_no_weight(model, write, tmp_path):
    prompts = write("prompts.jsonl", [{"prompt": f"Say {n}"} for n in range(12)])
    (tmp_path / "taste.py").write_text("def taste(text):\n    return float(sum(map(ord, text)) % 7)\n")
    rewards = f"[{{kind: '{tmp_path}/taste.py:taste', normalise: running}}]"
    given = ("--policy.name", model, "--data.train", prompts, "--rewards", rewards, "--steps", "3")
    small = (
        "--prompts_per_step",
        "2",
        "--algorithm",
        "reinforce",
        "--sampling.max_new_tokens",
        "8",
        "--policy.lr",
        "0.01",
    )
    weights = []
    for every in ("0", "1"):
        output = tmp_path / f"run-{every}"
        assert main(["rl", *given, *small, "--eval_every", every, "--output", str(output)]) == 0
        weights.append((output / "checkpoints" / "final" / "model.safetensors").read_bytes())
        assert len(read(output).series("reward/mean", "eval")[0]) == (2 if every == "0" else 4)
    assert weights[0] == weights[1]
