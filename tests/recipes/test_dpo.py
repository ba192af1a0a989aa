"""Preference optimization on given pairs and judged completions: every preset, any start, the cached reference."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import byte_tokenizer, llama

from prefrl.cli import main
from prefrl.config import DPOConfig, ModelConfig, SamplingConfig
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import add_lora, load
from prefrl.policy.algorithms import ALGORITHMS
from prefrl.recipes import reference
from prefrl.recipes.dpo import optimize_pairs
from prefrl.types import Completion, Pair, Prompt, Row

CONFIGS = Path(__file__).parents[2] / "configs" / "tiny"
PRESETS = [name for name, algorithm in ALGORITHMS.items() if algorithm.pairs is not None]
REFERENCED = [name for name in PRESETS if "reference" in ALGORITHMS[name].needs]
# What a policy at its reference loses: log 2; (0 - 1 / (2 beta))^2; half of everything; log 2.
FIRST_LOSS = {"dpo": math.log(2), "ipo": 25.0, "kto": 0.5, "ld_dpo": math.log(2)}
LOG2 = pytest.approx(math.log(2), abs=1e-6)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache folder."""
    monkeypatch.setenv("PREFRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference"


@pytest.fixture
def data(write):
    rows = [{"prompt": f"Say {i}", "chosen": f"{i} it is", "rejected": "no" * (i % 3 + 1)} for i in range(12)]
    return write("pairs.jsonl", rows)


@pytest.fixture
def judged(write):
    rows = [{"prompt": f"Say {i // 2}", "completion": f"{i} it is", "label": i % 3 > 0} for i in range(12)]
    return write("judged.jsonl", rows)


def some_pairs(count=8):
    return [
        Pair(
            prompt=Prompt(id=str(i), text=f"Say {i}"),
            chosen=Completion(text=f"{i} it is" + "!" * (i % 3)),
            rejected=Completion(text="no" * (i % 4 + 1)),
        )
        for i in range(count)
    ]


def some_policy(seed=0):
    tokenizer = byte_tokenizer()
    return LanguageModel(llama(len(tokenizer), seed=seed, eos=tokenizer.eos_token_id), tokenizer, name="tiny")


def disturb(module, size=0.05):
    """Other trained weights than those that were loaded or made."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in (p for p in module.parameters() if p.requires_grad):
            parameter += size * torch.randn(parameter.shape, generator=generator)


def go(name, output, *flags):
    assert main(["dpo", str(CONFIGS / f"{name}.yaml"), "--output", str(output), *flags]) == 0
    return read(output)


def trained(path, policy, algorithm="dpo", *, pairs=None, held_out=(), token_budget=4096, **options):
    """The metrics of a run on a policy in memory."""
    model = ModelConfig(lr=1e-3, token_budget=token_budget)
    config = DPOConfig(algorithm=algorithm, policy=model, **{"batch_size": 4, **options})
    with RunFolder.create(path, "dpo", {}) as folder:
        optimize_pairs(folder, policy, pairs or some_pairs(), held_out, config)
        folder.finish({})
    return [{k: v for k, v in line.items() if k not in ("time", "phase")} for line in read(path).metrics]


# Every preset. ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset(name, model, data, tmp_path):
    flags = ("--policy.name", model, "--data.train", data, "--epochs", "3")
    run = go(name, tmp_path / "one", *flags)
    assert run.state == "finished"
    losses, held_out = run.series("loss")[1], run.series("loss", "eval")[1]
    assert sum(losses[-3:]) < sum(losses[:3])  # of the last pass, and of the first
    assert held_out[-1] < held_out[0]
    wanted = {"loss", "accuracy", "margin", "chosen_logp", "rejected_logp", "grad_norm"}
    assert wanted <= set(run.names("train"))
    assert ("kl/mismatched" in run.names("train")) == (name == "kto")
    assert run.series("loss", "eval")[0][0] == 0  # before, and after every pass
    if name in FIRST_LOSS:
        assert losses[0] == pytest.approx(FIRST_LOSS[name], abs=1e-4)
        assert run.series("margin")[1][0] == pytest.approx(0.0, abs=1e-5)


def test_kto_of_completions_judged_one_by_one(model, judged, tmp_path):
    flags = ("--policy.name", model, "--data.train", judged)
    first, second = (go("kto", tmp_path / name, *flags) for name in ("one", "two"))
    losses = [run.series("loss")[1] for run in (first, second)]
    assert losses[0] == losses[1]
    assert losses[0][0] == pytest.approx(0.5, abs=1e-6)
    assert losses[0][-1] < 0.5


def test_pairs_are_two_judged_completions_each(tmp_path):
    pair = some_pairs(2)
    judged = [(p.prompt, side, good) for p in pair for side, good in ((p.chosen, True), (p.rejected, False))]
    one, other = (trained(tmp_path / n, some_policy(), "kto", pairs=p) for n, p in (("a", pair), ("b", judged)))
    assert one[0] == other[0]


def test_judged_completions_make_no_pairs(model, judged, tmp_path, capsys):
    flags = ("--policy.name", model, "--data.train", judged, "--output", str(tmp_path / "o"))
    assert main(["dpo", str(CONFIGS / "dpo.yaml"), *flags]) == 2
    assert "this algorithm compares pairs (prompt, chosen, rejected). Type: --algorithm kto" in capsys.readouterr().err


def test_columns_that_are_neither_judgements_nor_pairs(write, tmp_path, capsys):
    rows = write("named.jsonl", [{"prompt": "a", "completion": "b", "good": True}])
    flags = ("--data.train", rows, "--output", str(tmp_path / "o"))
    assert main(["dpo", *flags, "--algorithm", "kto"]) == 2
    assert "An unpaired preference dataset has prompt, completion, label. 'label' is missing" in capsys.readouterr().err
    assert main(["dpo", *flags, "--overwrite"]) == 2
    assert "A preference dataset has prompt, chosen, rejected" in capsys.readouterr().err


def test_an_algorithm_without_a_pair_loss_is_named(tmp_path, capsys):
    assert main(["dpo", "--algorithm", "grpo", "--data.train", "a.jsonl", "--output", str(tmp_path / "o")]) == 2
    assert "algorithm 'grpo' has no pair loss; use dpo, ipo, slic, kto" in capsys.readouterr().err


def test_a_tie_is_half_a_win_for_each_side(tmp_path):
    tied = [Pair(prompt=p.prompt, chosen=p.chosen, rejected=p.rejected, tie=1.0) for p in some_pairs(4)]
    (line, *_) = trained(tmp_path / "a", some_policy(), pairs=tied)
    assert line["loss"] == LOG2
    assert line["grad_norm"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("label", "tie", "learnt"),
    [(1.0, 0.0, 0.9), (0.5, 0.0, 0.5), (1.0, 0.5, 0.7), (0.2, 0.0, 0.74), (0.2, 1.0, 0.5)],
)
def test_labels_ties_and_smoothing_are_one_soft_label(label, tie, learnt, tmp_path):
    pairs = [replace(pair, label=label, tie=tie) for pair in some_pairs(4)]
    algorithm = {"name": "ipo", "pairs": {"label_smoothing": 0.1}}
    (line, *_) = trained(tmp_path / "a", some_policy(), algorithm, pairs=pairs)
    assert line["loss"] == pytest.approx(((2 * learnt - 1) / 0.2) ** 2, abs=1e-4)  # of a margin of 0


@pytest.mark.parametrize("name", [*PRESETS, "rpo"])
def test_which_side_is_named_chosen_does_not_matter(name, tmp_path):
    algorithm = {"name": "dpo", "pairs": {"sft": 1.0}} if name == "rpo" else name
    pairs = [replace(pair, label=0.8, tie=0.25) for pair in some_pairs()]
    swapped = [pair.swap() if i % 2 else pair for i, pair in enumerate(pairs)]
    one, other = (trained(tmp_path / n, some_policy(), algorithm, pairs=p) for n, p in (("a", pairs), ("b", swapped)))
    assert [line["chosen_logp"] for line in one] == pytest.approx([line["chosen_logp"] for line in other], rel=1e-5)
    assert one[-1]["loss"] == pytest.approx(other[-1]["loss"], rel=1e-5)


@pytest.mark.parametrize("name", [*PRESETS, "rpo"])
def test_micro_batches_change_nothing(name, tmp_path):
    algorithm = {"name": "dpo", "pairs": {"sft": 1.0}} if name == "rpo" else name
    held_out = some_pairs(11)[8:]
    runs = [
        trained(tmp_path / str(budget), some_policy(), algorithm, held_out=held_out, token_budget=budget)
        for budget in (1, 100_000)
    ]
    for one, other in zip(*runs, strict=True):
        one.pop("accuracy"), other.pop("accuracy")  # at a margin of 0 rounding decides it
        assert one == pytest.approx(other, rel=2e-4, abs=2e-5)


# The reference is the policy as it starts. -----------------------------------------------------------------------


@pytest.mark.parametrize("name", REFERENCED)
@pytest.mark.parametrize("start", ["weights in memory", "new adapter", "trained adapter", "adapter in a folder"])
def test_the_first_loss_from_any_start(start, name, model, tmp_path):
    policy = load(model)
    if start != "adapter in a folder":
        disturb(policy.module)
    if "adapter" in start:
        policy.model = add_lora(policy.model, 2, 0)
    if start in ("trained adapter", "adapter in a folder"):
        disturb(policy.module, 0.2)
    if start == "adapter in a folder":
        policy.save(tmp_path / "adapter")
        policy = load(str(tmp_path / "adapter"))
    first, *_ = trained(tmp_path / "run", policy, name)
    assert first["loss"] == pytest.approx(FIRST_LOSS[name], abs=1e-5)
    assert first["margin"] == pytest.approx(0.0, abs=1e-6)


def test_a_trained_policy_is_the_next_runs_reference(model, data, tmp_path):
    flags = ("--data.train", data, "--policy.lora", "2")
    first = go("dpo", tmp_path / "one", *flags, "--policy.name", model)
    final = str(tmp_path / "one" / "checkpoints" / "final")
    again = go("dpo", tmp_path / "two", "--data.train", data, "--policy.name", final)
    assert first.series("loss")[1][0] == again.series("loss")[1][0] == LOG2
    assert first.series("chosen_logp")[1][0] != again.series("chosen_logp")[1][0]


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in REFERENCED])
def test_without_a_reference_none_is_computed(name, cache, monkeypatch, tmp_path):
    monkeypatch.setattr("prefrl.recipes.dpo.reference_logps", lambda *_, **__: pytest.fail("a reference"))
    asked = []
    ask = Engine.logps
    monkeypatch.setattr(Engine, "logps", lambda self, rows, who="policy": asked.append(who) or ask(self, rows, who))
    trained(tmp_path / "run", some_policy(), name, held_out=some_pairs(9)[8:])
    assert "reference" not in asked
    assert not cache.exists()


def test_pairs_keep_no_copy_of_the_weights(monkeypatch, tmp_path):
    monkeypatch.setattr(Engine, "snapshot", lambda _: pytest.fail("a copy of the weights"))
    trained(tmp_path / "run", some_policy())


# Cached log-probs of the reference. ------------------------------------------------------------------------------


def counted(monkeypatch):
    """How many rows an engine was asked for."""
    asked = []
    ask = Engine.logps
    monkeypatch.setattr(
        Engine, "logps", lambda self, rows, who="policy": asked.append(len(rows)) or ask(self, rows, who)
    )
    return asked


@pytest.mark.parametrize("name", REFERENCED)
def test_a_cached_reference_changes_nothing(name, cache, tmp_path, capsys, monkeypatch):
    off = trained(tmp_path / "off", some_policy(), name, cache_reference=False)
    assert not cache.exists()
    cold = trained(tmp_path / "cold", some_policy(), name)
    assert len(list(cache.iterdir())) == 1  # and nothing half-written beside it
    assert "from " not in capsys.readouterr().out
    asked = counted(monkeypatch)
    warm = trained(tmp_path / "warm", some_policy(), name)
    assert "Log-probs of 16 completions under the reference: from" in capsys.readouterr().out
    assert off == cold == warm
    assert 16 not in asked


def test_the_key_is_made_of_weights_settings_and_data_not_of_names(model, tmp_path):
    known = reference.fingerprint(load(model).module)
    shutil.copytree(model, tmp_path / "elsewhere")
    assert reference.fingerprint(load(str(tmp_path / "elsewhere")).module) == known
    changed = load(model)
    with torch.no_grad():
        next(iter(changed.module.parameters())).view(-1)[7] += 1e-6
    assert reference.fingerprint(changed.module) != known
    other = load(model)
    other.model.config.rope_theta = 3.0
    assert reference.fingerprint(other.module) != known


def test_the_key_sees_adapters_and_their_scale():
    prints = set()
    for rank, scale in ((2, 2.0), (2, 4.0), (4, 2.0)):
        policy = some_policy()
        policy.model = add_lora(policy.model, rank, 0)
        for adapter in policy.model.peft_config.values():
            adapter.lora_alpha = scale
        prints.add(reference.fingerprint(policy.module))
    assert len({*prints, reference.fingerprint(some_policy().module)}) == 4


def test_the_key_sees_adapters_that_are_off_and_scaled_in_place():
    policy = some_policy()
    policy.model = add_lora(policy.model, 2, 0)
    known = reference.fingerprint(policy.module)
    with policy.model.disable_adapter():
        assert reference.fingerprint(policy.module) != known
    assert reference.fingerprint(policy.module) == known
    layer = next(part for part in policy.module.modules() if hasattr(part, "scale_layer"))
    layer.scale_layer(0.5)
    assert reference.fingerprint(policy.module) != known


def test_the_key_sees_buffers_that_no_state_dict_has():
    policy = some_policy()
    known = reference.fingerprint(policy.module)
    saved = policy.module.state_dict()
    frequencies = next(buffer for name, buffer in policy.module.named_buffers() if name not in saved)
    frequencies *= 2
    assert reference.fingerprint(policy.module) != known


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_another_version_computes_its_own_reference(package, cache, monkeypatch):
    engine = Engine(some_policy(), ModelConfig())
    reference.reference_logps(engine, rows_of())
    monkeypatch.setattr(f"{package}.__version__", "another")
    reference.reference_logps(engine, rows_of())
    assert len(list(cache.iterdir())) == 2


def test_another_temperature_has_its_own_reference(cache):
    for temperature in (1.0, 0.5):
        sampling = SamplingConfig(temperature=temperature)
        reference.reference_logps(Engine(some_policy(), ModelConfig(), sampling=sampling), rows_of())
    assert len(list(cache.iterdir())) == 2


def rows_of(count=3):
    return [Row(prompt_ids=(3, 4 + i), completion_ids=(5, 6), mask=(True, True)) for i in range(count)]


def test_other_data_is_not_taken_from_the_cache(cache):
    engine = Engine(some_policy(), ModelConfig())
    rows = rows_of()
    known = reference.reference_logps(engine, rows)
    for changed in (
        rows[:2],
        rows[::-1],
        [*rows[:2], Row(prompt_ids=(3, 6), completion_ids=(5, 7), mask=(True, True))],
    ):
        found = reference.reference_logps(engine, changed)
        assert len(found) == len(changed)
    assert len(list(cache.iterdir())) == 4
    again = reference.reference_logps(engine, rows)
    assert all(torch.equal(a, b) for a, b in zip(known, again, strict=True))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other numbers"])
def test_a_damaged_cache_is_computed_again(damage, cache, capsys):
    from safetensors.torch import save_file

    engine = Engine(some_policy(), ModelConfig())
    known = reference.reference_logps(engine, rows_of())
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    if damage == "other numbers":
        save_file({"logps": torch.zeros(6)}, file)
    else:
        flipped = whole[:-1] + bytes([whole[-1] ^ 1])
        file.write_bytes({"cut": whole[:-4], "flipped": flipped, "empty": b""}[damage])
    found = reference.reference_logps(engine, rows_of())
    assert all(torch.equal(a, b) for a, b in zip(known, found, strict=True))
    assert "computed again" in capsys.readouterr().out
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_nothing_else(cache, capsys):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    engine = Engine(some_policy(), ModelConfig())
    assert len(reference.reference_logps(engine, rows_of())) == 3
    assert "could not be cached" in capsys.readouterr().out


# Both sides fall. ------------------------------------------------------------------------------------------------


def test_what_was_used_longest_ago_makes_room(cache, monkeypatch):
    engine = Engine(some_policy(), ModelConfig())

    def ask(count):
        before = set(cache.glob("*"))
        reference.reference_logps(engine, rows_of(count))
        return next(iter(set(cache.glob("*")) - before), None)

    first, second = ask(1), ask(2)
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    assert ask(1) is None  # it is there, and now it was used last
    monkeypatch.setattr(reference, "MOST_BYTES", first.stat().st_size + second.stat().st_size + 20)
    third = ask(3)
    assert set(cache.glob("*")) == {first, third}
    monkeypatch.setattr(reference, "MOST_BYTES", 1)
    last = ask(4)
    assert set(cache.glob("*")) == {last}  # what was just made stays


def test_a_note_where_both_sides_become_less_likely(tmp_path, capsys):
    """Sides that share all but one token: what makes the rejected one less likely takes the chosen one along."""
    pairs = [
        Pair(
            prompt=Prompt(id=str(i), text=f"Say {i}"),
            chosen=Completion(text=f"aaaaaaaa{'b' * (i % 2)}"),
            rejected=Completion(text="aaaaaaaaaaaaaaaa"),
        )
        for i in range(8)
    ]
    lines = trained(tmp_path / "a", some_policy(), pairs=pairs, epochs=12)
    assert lines[-1]["chosen_logp"] < lines[0]["chosen_logp"]
    assert lines[-1]["margin"] > 0.1
    printed = capsys.readouterr().out
    assert printed.count("Note: The log-probability of chosen answers fell from") == 1
    trained(tmp_path / "b", some_policy(), {"name": "dpo", "pairs": {"sft": 1.0}}, pairs=pairs, epochs=12)
    assert "Note:" not in capsys.readouterr().out
