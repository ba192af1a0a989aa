"""A transformer made from nothing learns to search, and does so for numbers that it is never trained on."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from prefrl.data.tasks import task_rows
from prefrl.rollout.guessing import GuessingInWords

PATH = Path(__file__).parents[2] / "examples" / "02_number_guessing.py"
SPEC = importlib.util.spec_from_file_location("number_guessing", PATH)
assert SPEC is not None and SPEC.loader is not None
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_success_on_held_out_numbers_improves(seed):
    policy = example.small_model(example.WORDS, seed=seed)
    example.imitate(policy, steps=150, seed=seed)
    before = {split: example.success(policy, split) for split in ("train", "held_out")}
    example.reinforce(policy, steps=100, seed=seed)
    after = {split: example.success(policy, split) for split in ("train", "held_out")}
    print(f"seed {seed}: {before} -> {after}")
    assert before["held_out"] > 0.35  # not far from the .589 of random possible guesses at these four numbers
    assert after["train"] >= before["train"] + 0.25
    assert after["held_out"] >= before["held_out"] + 0.1


def test_a_few_steps_of_the_example(capsys):
    policy = example.small_model(example.WORDS)
    start = example.success(policy, "held_out", games=4)
    example.imitate(policy, steps=2, seed=0)
    example.reinforce(policy, steps=20, seed=0)
    assert 0.0 <= start <= 1.0
    assert capsys.readouterr().out.startswith("step 20: reward ")


def test_random_play_is_possible_play_and_token_for_token_what_a_rollout_has():
    policy, rng = example.small_model(example.WORDS), random.Random(0)
    for prompt in example.prompts("train"):
        row = example.random_play(policy, prompt, rng)
        words = policy.tokenizer.convert_ids_to_tokens(list(row.completion_ids))
        replies = [i for i, sampled in enumerate(row.mask) if not sampled]
        assert {words[i] for i in replies} <= {"higher", "lower"}
        environment = GuessingInWords()
        environment.reset(prompt)
        for word in (w for w, sampled in zip(words, row.mask, strict=True) if sampled and w != "<eos>"):
            environment.step(word)
        report = environment.report()
        assert report["ruled_out"] == report["invalid"] == report["out_of_range"] == 0
        assert [words[i - 1] for i in replies] == ["<eos>"] * (report["turns"] - 1)


def test_targets_are_split():
    train = [row["target"] for row in task_rows("task:guessing")]
    held_out = [row["target"] for row in task_rows("task:guessing:held_out")]
    assert held_out == [2, 6, 11, 15]
    assert sorted(train + held_out) == list(range(1, 17))
