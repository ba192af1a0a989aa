"""Three rounds of labels, reward model and policy: the win rate on held-out prompts rises every time."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest
from tiny import digit_tokenizer, llama

from prefrl.config import (
    DataConfig,
    LabellerConfig,
    LoopConfig,
    ModelConfig,
    RewardConfig,
    RewardModelConfig,
    SamplingConfig,
)
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.recipes.loop import run

ROOT = Path(__file__).parents[2]
SEEDS = [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
UTILITY = '''
def size(text):
    """Mean digit of three, in [0, 1]."""
    return sum(int(c) for c in text[:3] if c.isdigit()) / 27
'''


def loop(folder, seed, **changes):
    """The win rates of all rounds of a loop from random weights, whose simulator likes large digits."""
    tokenizer = digit_tokenizer()
    llama(len(tokenizer), hidden=64, seed=seed).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "taste.py").write_text(UTILITY)
    numbers = random.Random(seed).sample(range(1000), 160)
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"{n:03d}="}) + "\n" for n in numbers))
    labeller = {"utility": [{"kind": f"{folder}/taste.py:size"}], "noise": 0.05, "flip": 0.05}
    config = LoopConfig(
        policy=ModelConfig(name=str(folder / "model"), lr=4e-4),
        data=DataConfig(train=str(folder / "prompts.jsonl"), eval_fraction=0.5),
        sampling=SamplingConfig(max_new_tokens=3),
        labeller=LabellerConfig(**labeller | changes.pop("labeller", {})),
        reward=RewardConfig(model=RewardModelConfig(name=str(folder / "model"), lr=3e-3), epochs=4),
        algorithm={"name": "grpo", "group_size": 8, "kl": {"coef": 0.0}},
        steps=5,
        pairs_per_round=64,
        output=str(folder / "run"),
        seed=seed,
        **changes,
    )
    run(config)
    data = read(folder / "run")
    return data.series("win_rate", "round")[1], data.series("accuracy", "round")[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_win_rate_rises_every_round(seed, tmp_path):
    wins, accuracy = loop(tmp_path, seed)
    assert 0.5 < wins[0] < wins[1] < wins[2], wins
    assert wins[2] > 0.85, wins
    assert accuracy[-1] > 0.7, accuracy


def test_the_example_can_be_run_twice(tmp_path, monkeypatch, capsys):
    """The second time it shows the rounds of the loop that is finished."""
    spec = importlib.util.spec_from_file_location("loop_example", ROOT / "examples" / "05_loop.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "FOLDER", tmp_path)
    done = {"round 1": {"labels": 96, "win_rate": 0.75}}

    def finish(config):
        with RunFolder.create(config.output, "loop", {}) as folder:
            folder.finish(done)

    monkeypatch.setattr(example, "run", finish)
    for _ in range(2):
        example.main()
    said = capsys.readouterr().out
    assert said.count("round 1: 96 labels, preferred to the start in 75%") == 2
    assert said.count("holds the finished loop; delete it to run it anew") == 1
