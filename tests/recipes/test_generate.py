"""Pairs of a policy's answers, or of two policies', put into a store for people."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from prefrl.cli import main
from prefrl.data.preferences import PreferenceStore
from prefrl.evaluate.run_folder import read

PROMPTS = [{"prompt": f"Say {n}"} for n in range(8)]


@pytest.fixture
def generate(model, write, tmp_path):
    """Runs the command with a tiny policy into a store; its exit status."""
    prompts = write("prompts.jsonl", PROMPTS)
    count = iter(range(100))

    def generate(*more, store=tmp_path / "store.db"):
        given = ("--model", model, "--data.train", prompts, "--sampling.max_new_tokens", "6", "--store", str(store))
        return main(["generate", *given, "--output", str(tmp_path / f"run-{next(count)}"), *more])

    return generate


def items(tmp_path):
    with PreferenceStore(tmp_path / "store.db") as store:
        return store.items()


def test_pairs_of_one_policy(generate, model, tmp_path):
    assert generate("--pairs", "12", "--overlap", "2", "--max_per_prompt", "2") == 0
    found = items(tmp_path)
    assert len(found) == 12 and max(Counter(item.prompt.id for item in found).values()) == 2
    assert {(i.checkpoints, i.why, i.overlap, i.judge) for i in found} == {((model, model), "random", 2, "")}
    assert all(i.first.text != i.second.text and i.first.ids and i.first.logps for i in found)
    run = read(tmp_path / "run-0")
    assert (run.kind, run.state, run.status["summary"]["added"]) == ("generate", "finished", 12)
    written = [json.loads(line) for line in (run.path / "items.jsonl").read_text().splitlines()]
    assert [row["id"] for row in written] == [item.id for item in found]


def test_what_was_asked_before_is_not_asked_again(generate, tmp_path, capsys):
    assert generate("--pairs", "1000", "--samples", "2", "--max_per_prompt", "9") == 0
    before = len(items(tmp_path))
    assert generate("--pairs", "1000", "--samples", "2", "--max_per_prompt", "9") == 2
    assert f"{before} were asked before" in capsys.readouterr().err
    assert len(items(tmp_path)) == before
    assert generate("--pairs", "3", "--seed", "1") == 0
    assert len(items(tmp_path)) == before + 3


def test_a_reward_model_chooses(generate, reward_model, tmp_path):
    assert generate("--pairs", "8", "--reward", reward_model) == 0
    found = items(tmp_path)
    assert Counter(item.why for item in found) == {"random": 2, "uncertainty": 6}  # a quarter
    assert {item.judge for item in found} == {reward_model} and all(item.uncertainty > 0 for item in found)


def test_two_policies_are_compared_first_against_second(generate, model, tmp_path):
    assert generate("--against", f"{model}/.", "--compare", "true", "--samples", "1", "--max_per_prompt", "1") == 0
    found = items(tmp_path)
    assert {item.checkpoints for item in found} == {(model, f"{model}/.")} and {i.why for i in found} == {"comparison"}
    assert len({item.prompt.id for item in found}) == len(found)
    summary = read(tmp_path / "run-0").status["summary"]
    assert summary["added"] + summary["identical"] == len(PROMPTS)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--model", ""), "No policy was named"),
        (("--store", ""), "No store was named"),
        (("--samples", "1"), "2 or more, or a policy in against"),
        (("--compare", "true"), "against is empty"),
        (("--pairs", "0"), "pairs is 0"),
        (("--random_share", "2"), "random_share is 2"),
    ],
)
def test_what_cannot_be_generated(more, says, generate, capsys):
    assert generate(*more) == 2
    assert says in capsys.readouterr().err
