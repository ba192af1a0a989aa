"""The quickstart end to end on a tiny random model: everything but the learning."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tiny import byte_tokenizer, llama

from prefrl.config import QuickstartConfig
from prefrl.recipes import quickstart
from prefrl.types import Prompt, Rollout, StopReason


@pytest.fixture
def model(tmp_path):
    tokenizer = byte_tokenizer()
    path = tmp_path / "model"
    llama(len(tokenizer), layers=7, eos=tokenizer.eos_token_id).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def config(model, output, **changes):
    small = QuickstartConfig(
        model=model, output=str(output), prompts=6, eval_prompts=4, steps=1, max_new_tokens=6, top_layers=2
    )
    return replace(small, **changes)


def test_the_same_seed_tells_the_same_story(model, tmp_path, capsys):
    told = []
    for name in ("one", "two"):
        quickstart.run(config(model, tmp_path / name))
        status = json.loads((tmp_path / name / "status.json").read_text())
        assert status["state"] == "finished"
        summary = status["summary"]
        told.append({k: summary[k] for k in ("pairs", "reward_model", "policies")})
    assert told[0] == told[1]
    assert set(told[0]["policies"]) == {"start", "GRPO", "DPO"}
    page = (tmp_path / "one" / "report.html").read_text()
    assert "Answers side by side" in page
    assert "Simulated annotator, not a person" in page
    assert 'src="http' not in page
    printed = capsys.readouterr().out
    assert [f"\n{i}. " in printed for i in range(1, 6)] == [True] * 5
    assert "Try next:" in printed


def test_own_pairs_have_no_independent_judge(model, tmp_path):
    rows = [{"prompt": f"Say {i}", "chosen": f"{i} it is", "rejected": "no " * (i % 3 + 1)} for i in range(30)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    folder = quickstart.run(config(model, tmp_path / "own", pairs=str(file)))
    summary = json.loads((folder.path / "status.json").read_text())["summary"]
    assert summary["judge"] == "the reward model itself"
    assert "bring no independent judge" in (folder.path / "report.html").read_text()


def test_all_pairs_of_a_prompt_are_labelled():
    annotator = quickstart.SimulatedAnnotator(noise=0.0)
    prompt = Prompt(id="rice", text="What can I cook with rice?", columns={"keywords": ["rice", "egg", "fry"]})
    texts = [
        "Sure, I can help!",
        "Fry the rice with an egg and some oil.",
        "rice rice rice",
        "It is an egg that you fry.",
    ]
    rollouts = [
        Rollout(
            prompt=prompt,
            completion_ids=(i,),
            mask=(True,),
            logps=(-1.0,),
            text=text,
            stop=StopReason.EOS,
            group="rice",
        )
        for i, text in enumerate(texts)
    ]
    pairs = quickstart.label(rollouts, annotator, seed=0)
    assert len(pairs) <= 6
    wins = [pair for pair in pairs if pair.chosen.text == texts[1]]
    assert len(wins) == 3


def test_training_and_held_out_prompts_are_apart():
    train, held_out = quickstart.everyday_prompts(QuickstartConfig())
    assert len(train) == 240
    assert len(held_out) == 80
    assert not {p.id for p in train} & {p.id for p in held_out}
    assert all(p.question.endswith(quickstart.INSTRUCTION) for p in [*train, *held_out])
