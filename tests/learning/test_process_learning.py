from __future__ import annotations

import json
import random
import runpy
from pathlib import Path

import pytest
from tiny import byte_tokenizer, llama

from prefrl.cli import main
from prefrl.evaluate.run_folder import read


@pytest.mark.slow
def test_a_process_reward_model_learns_which_steps_are_wrong(tmp_path):
    tokenizer = byte_tokenizer()
    llama(len(tokenizer), hidden=64, layers=2, eos=tokenizer.eos_token_id).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rng, rows = random.Random(0), []
    for number in range(400):
        labels = [rng.random() < 0.8 for _ in range(4)]
        steps = [f"{'go' if fine else 'no'} {rng.randrange(10)}" for fine in labels]
        rows.append({"prompt": f"Problem {number}.", "completions": steps, "labels": labels})
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = {
        "model.name": tmp_path / "model",
        "model.lr": 1e-3,
        "data.train": tmp_path / "steps.jsonl",
        "steps.after_error": "keep",
        "test_fraction": 0.2,
        "epochs": 3,
        "batch_size": 16,
        "threads": 1,
        "output": tmp_path / "run",
    }
    assert main(["prm", *(word for name, value in flags.items() for word in (f"--{name}", str(value)))]) == 0
    summary = read(tmp_path / "run").status["summary"]
    assert summary["f1"] > 0.8 and summary["auroc"] > 0.9


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_finds_first_errors_of_arithmetic(tmp_path):
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "11_first_error.py"))
    summary = read(example["main"](passes=4, output=str(tmp_path / "run"))).status["summary"]
    assert summary["f1"] > 0.9 and summary["auroc"] > 0.97
