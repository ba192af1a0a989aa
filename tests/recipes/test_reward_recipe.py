"""Reward models from judgements, end to end on tiny models: what is trained, fitted for serving, measured and saved."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import byte_tokenizer
from torch import nn
from transformers import BertConfig, BertModel

from prefrl import rewards
from prefrl.cli import main
from prefrl.config import DataConfig, EnsembleConfig, LabelConfig, LengthConfig, ModelConfig, RewardConfig
from prefrl.config import RewardModelConfig as ModelPart
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.engine import Engine
from prefrl.model.ensemble import load_reward_scorer
from prefrl.model.features import FeatureRewardModel
from prefrl.model.kernel import suffix_hidden
from prefrl.policy.judgement import LabelModel
from prefrl.recipes import reward, reward_fit
from prefrl.recipes.pairs import reward_rows
from prefrl.recipes.reward_fit import best_temperature, held_out_figures, matched, resampled, update
from prefrl.types import Completion, Pair, Prompt, Row

CONFIGS = Path(__file__).parents[2] / "configs"
WORDS = ("yes", "no", "maybe", "surely", "never")


def pair(i, chosen, rejected, **more):
    prompt = Prompt(id=str(i), messages=({"role": "user", "content": f"is it {i}?"},))
    return Pair(prompt=prompt, chosen=Completion(text=chosen), rejected=Completion(text=rejected), **more)


def some_pairs(count, seed=0):
    """The longer answer wins four times in five."""
    rng = random.Random(seed)
    pairs = []
    for i in range(count):
        short, long = " ".join(rng.choices(WORDS, k=2)), " ".join(rng.choices(WORDS, k=5))
        pairs.append(pair(i, long, short) if rng.random() < 0.8 else pair(i, short, long))
    return pairs


def configured(model, **more):
    part = ModelPart(name=model, lr=3e-3, **more.pop("part", {}))
    return RewardConfig(model=part, batch_size=8, epochs=2, max_tokens=200, **more)


@pytest.fixture
def run(tmp_path):
    """Train on pairs; the model, the run folder's path and what `finish` fitted."""

    def run(config, train, held_out, name="run"):
        with RunFolder.create(tmp_path / name, "reward", {}) as folder:
            made = reward.new_model(config.model, config.seed, config.ensemble)
            labels = reward.fit(folder, made, train, held_out, config)
            figures = reward.finish(made, held_out, config, labels)
            folder.finish({})
        return made, tmp_path / name, figures

    return run


@pytest.fixture
def files(write):
    """Training and test pairs as files."""

    def rows(pairs):
        return [
            {"prompt": [dict(m) for m in p.prompt.messages], "chosen": p.chosen.text, "rejected": p.rejected.text}
            for p in pairs
        ]

    pairs = some_pairs(100)
    return write("train.jsonl", rows(pairs[:70])), write("test.jsonl", rows(pairs[70:]))


KINDS = {
    "heads": ({}, EnsembleConfig(members=3)),
    "models": ({"layers": 1}, EnsembleConfig(members=2, kind="models")),
    "adapters": ({"lora": 2}, EnsembleConfig(members=2, kind="models", bootstrap=False)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ensembles_end_to_end(kind, model, files, tmp_path):
    part, ensemble = KINDS[kind]
    train, test = files
    config = configured(model, part=part, ensemble=ensemble, data=DataConfig(train=train, eval_fraction=0.4), test=test)
    folder = reward.run(replace(config, output=str(tmp_path / "run"))).path
    summary = read(folder).status["summary"]
    assert summary["measured_on"] == "test" and summary["accuracy_counts"][1] == 30
    temperature, nll = summary["fitted"]["temperature"], summary["nll"]
    assert summary["probabilities"]["calibrated"]["nll"] == nll != summary["probabilities"]["raw"]["nll"]
    source = rewards.BradleyTerry.load(str(folder), combine="lcb")
    scorer = load_reward_scorer(str(folder / "checkpoints" / "final"))
    assert scorer.members == ensemble.members
    assert scorer.record.temperature == pytest.approx(temperature) and scorer.record.std > 0
    rows = [scorer.encode(p.prompt, p.chosen) for p in some_pairs(5)]
    assert float(scorer.member_scores(rows).std(1).min()) > 1e-4  # members have become different judges
    assert all(score.parts["std"] > 0 for score in source.score_pairs(some_pairs(5))[0])
    steps = read(folder).series("loss", "train")[0]
    assert steps == list(range(1, len(steps) + 1))


def test_what_was_fitted_is_in_the_summary_and_the_report(model, write, tmp_path):
    rng = random.Random(3)
    rows = [
        {"prompt": p.prompt.messages[0]["content"], "chosen": p.chosen.text, "rejected": p.rejected.text}
        | {"annotator": "ann" if i % 3 else "bob", "tie": rng.random() < 0.2}
        for i, p in enumerate(some_pairs(100))
    ]
    labels, ensemble = LabelConfig(ties="davidson", reliability="learn"), EnsembleConfig(members=3)
    data = DataConfig(train=write("train.jsonl", rows), eval_fraction=0.4)
    config = configured(model, labels=labels, ensemble=ensemble, data=data, output=str(tmp_path / "run"))
    folder = reward.run(config).path
    summary = read(folder).status["summary"]
    record = load_reward_scorer(str(folder / "checkpoints" / "final")).record
    assert summary["fitted"]["tie_model"] == "davidson"
    assert summary["fitted"]["tie_parameter"] == record.tie_parameter > 0
    counts = summary["ensemble"]["accuracy_by_spread"]
    assert [sum(column) for column in zip(*counts, strict=True)] == summary["accuracy_counts"]
    assert summary["ensemble"]["members"] == 3 and summary["ensemble"]["spread"] > 0
    pairs = summary["tie_shares"]["pairs"]
    assert summary["tie_shares"]["observed"] == pytest.approx(1 - summary["accuracy_counts"][1] / pairs)
    assert 0 < summary["tie_shares"]["predicted"] < 1
    page = (folder / "report.html").read_text(encoding="utf-8")
    for text in ("What was fitted", "Davidson", "accuracy, least sure third", ">bob<"):
        assert text in page


def test_resampling_by_hand():
    rows = [
        tuple(Row(prompt_ids=(1,), completion_ids=(i, s), mask=(False, True), weight=0.5) for s in (2, 3))
        for i in range(3)
    ]
    copies = torch.tensor([[0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    heads = resampled(rows, copies)
    assert [[r.completion_ids[0] for r in judged] for judged in heads] == [[0, 0], [1, 1]]
    assert [judged[0].streams["bootstrap"].tolist() for judged in heads] == [[[0.0, 2.0]] * 2, [[1.0, 1.0]] * 2]
    assert {r.weight for judged in heads for r in judged} == {0.5}
    member = resampled(rows, copies[:, 1])
    assert [[(r.completion_ids[0], r.weight) for r in judged] for judged in member] == [[(0, 1.0)] * 2, [(1, 0.5)] * 2]
    assert [[r.completion_ids[0] for r in judged] for judged in resampled(rows, copies[:, 0])] == [[1, 1]]
    assert rows[0][0].streams == {} and rows[0][0].weight == 0.5


@pytest.mark.parametrize("kind", ["heads", "models"])
def test_members_learn_from_their_own_sample(kind, model, run, monkeypatch):
    """One of two members sees only pairs that were turned round: it learns the opposite of the other one."""
    pairs = [pair(i, "yes " * 6, "no") for i in range(16)] + [pair(i, "no", "yes " * 6) for i in range(16, 32)]
    copies = torch.tensor([[1.0, 0.0]] * 16 + [[0.0, 1.0]] * 16)
    monkeypatch.setattr("prefrl.recipes.reward_fit.bootstrap_counts", lambda *_: copies)
    config = configured(model, ensemble=EnsembleConfig(members=2, kind=kind), calibrate=False)
    made, _, _ = run(config, pairs, [])
    chosen, rejected = (
        made.member_scores([made.encode(p.prompt, side)]) for p in pairs[:1] for side in (p.chosen, p.rejected)
    )
    gaps = (chosen - rejected).squeeze().tolist()
    assert gaps[0] > 0.02 and gaps[1] < -0.02


def features(seed=0, pairs=12):
    generator = torch.Generator().manual_seed(seed)
    model = FeatureRewardModel(nn.Linear(4, 3, bias=False).double())
    with torch.no_grad():
        model.net.weight.copy_(torch.randn(3, 4, generator=generator))
    rows = []
    for index in range(2 * pairs):
        row = model.encode(torch.randn(4, generator=generator, dtype=torch.float64))
        row.atom, row.side, row.weight = index // 2, 1 - 2 * (index % 2), 1.0 / pairs
        row.streams = {"characters": torch.randint(10, 90, (1,), generator=generator).float()}
        rows.append(row)
    return model, rows


def gradient(config, budget):
    model, rows = features()
    engine = Engine(model, ModelConfig(lr=1e-3, max_grad_norm=0.0, token_budget=budget))
    caught = {}
    engine._optimizer.step = lambda: caught.update(grad=model.net.weight.grad.clone())
    metrics = update(engine, rows, LabelModel(LabelConfig()), config)
    return caught["grad"], metrics


def test_the_length_penalty_does_not_depend_on_micro_batches():
    config = RewardConfig(length=LengthConfig(kind="penalty", coef=3.0))
    whole, metrics = gradient(config, 10_000)
    for budget in (2, 6, 14):
        torch.testing.assert_close(gradient(config, budget)[0], whole, atol=1e-6, rtol=0)
    plain, _ = gradient(RewardConfig(), 10_000)
    model, rows = features()
    scores = model.net(torch.cat([row.observations for row in rows]))
    s = scores - scores.reshape(12, 2, 3).mean(1).repeat_interleave(2, 0)
    lengths = torch.stack([row.streams["characters"] for row in rows]).double().squeeze()
    ell = (lengths - lengths.reshape(12, 2).mean(1).repeat_interleave(2))[:, None]
    penalty = ((s * ell).sum(0) ** 2 / ((s**2).sum(0) * (ell**2).sum())).mean()
    (3.0 * penalty).backward()
    torch.testing.assert_close(whole - plain, model.net.weight.grad, atol=1e-6, rtol=0)
    assert float((whole - plain).abs().max()) > 1e-2
    assert metrics["length/squared_correlation"] == pytest.approx(float(penalty.detach()), abs=1e-6)


def test_the_penalty_on_texts(model, run):
    plain, _, _ = run(configured(model, calibrate=False), some_pairs(60), [], "plain")
    config = configured(model, length=LengthConfig(kind="penalty", coef=10.0), calibrate=False)
    made, path, _ = run(config, some_pairs(60), [], "penalised")
    assert len(read(path).series("length/squared_correlation", "train")[1]) > 0
    fresh = some_pairs(60, seed=1)

    def within(scorer):
        return abs(reward.pair_quality(scorer, fresh, []).length.within)

    assert within(made) < within(plain) - 0.2


def test_matching_weighs_and_reports(capsys):
    pairs = [
        pair(0, "aaaa", "a"),
        pair(1, "aaaa", "a"),
        pair(2, "aaaa", "a"),
        pair(3, "a", "aaaa"),
        pair(4, "ab", "cd"),
    ]
    kept = matched([*pairs, pair(5, "a", "bb", label=0.0)])  # labelled the other way round: the longer side wins
    assert [p.weight for p in kept] == pytest.approx([2.5 / 4] * 3 + [2.5] + [1.0] + [2.5 / 4])
    assert "the longer side wins 4 pairs and loses 1" in capsys.readouterr().out
    assert matched(pairs[:3]) == []
    assert "3 pairs without a counterpart are left out" in capsys.readouterr().out


def test_the_residual_is_taken_off_when_serving(model, run, tmp_path):
    held_out = some_pairs(60, seed=1)
    config = configured(model, length=LengthConfig(kind="residual"))
    made, _, figures = run(config, some_pairs(60), held_out)
    assert figures["length_slope"] > 0
    made.save(tmp_path / "rm")
    served = rewards.BradleyTerry.load(str(tmp_path / "rm"))
    chosen, rejected = served.score_pairs(held_out)
    gaps = [c.total - r.total for c, r in zip(chosen, rejected, strict=True)]
    lengths = [len(p.chosen.text) - len(p.rejected.text) for p in held_out]
    assert sum(g * n for g, n in zip(gaps, lengths, strict=True)) == pytest.approx(0.0, abs=1e-2)
    raw = made.scores([row for rows in reward_rows(held_out, made) for row in rows])
    with_length = sum((c - r) * n for c, r, n in zip(raw[::2], raw[1::2], lengths, strict=True))
    assert abs(with_length) > 1.0


def test_nothing_held_out(model, run, capsys, tmp_path):
    _, _, figures = run(configured(model), some_pairs(8), [])
    printed = capsys.readouterr().out
    assert "Not calibrated: no judgement is held out." in printed
    assert figures == {} and "every pass is made, and the last one kept" in printed
    with pytest.raises(ConfigError, match=r"length\.kind is residual, but nothing is held out"):
        run(configured(model, length=LengthConfig(kind="residual")), some_pairs(8), [], "residual")
    assert not (tmp_path / "residual").exists()  # refused before anything is trained


def test_nothing_is_left_to_train_on(model, run, capsys):
    longer_wins = [pair(i, "yes " * 6, "no") for i in range(4)]
    with pytest.raises(DataError, match="Of 4 judgements none is left to train on"):
        run(configured(model, length=LengthConfig(kind="match")), longer_wins, [])
    assert "4 pairs without a counterpart are left out" in capsys.readouterr().out


def test_annotators_weigh_the_same_where_they_are_held_out(model, run, capsys):
    """What someone of weight 0 said changes nothing: neither the passes, nor the temperature."""
    trusted = [replace(p, annotator="a") for p in some_pairs(40)]
    spam = [replace(p.swap(), annotator="b") for p in some_pairs(60, seed=1)]
    watched = [replace(p, annotator="a") for p in some_pairs(30, seed=2)]
    labels = LabelConfig(annotator_weights={"a": 1.0, "b": 0.0})
    _, _, with_spam = run(configured(model, labels=labels), trusted, watched + spam, "with")
    assert "held-out judgements: kept 30 of 90: 60 of weight 0" in capsys.readouterr().out
    _, _, without = run(configured(model), trusted, watched, "without")
    assert with_spam == without and "temperature" in without


def test_only_ties_are_not_measured(model, files, write, tmp_path, capsys):
    rows = [json.loads(line) | {"tie": True} for line in Path(files[1]).read_text().splitlines()]
    config = configured(model, data=DataConfig(train=files[0]), test=write("ties.jsonl", rows))
    assert read(reward.run(replace(config, output=str(tmp_path / "run"))).path).status["state"] == "finished"
    assert "Not measured: none of 30 pairs prefers one side." in capsys.readouterr().out


def test_who_contradicts_everyone_is_named(capsys):
    labels = LabelModel(LabelConfig(reliability="learn"), {"ann": 10, "bob": 10})
    with torch.no_grad():
        labels.raw_alpha.copy_(torch.tensor([1.2, -1.2]))
    figures = reward._annotators([labels])["annotators"]
    assert [(one["name"], one["flagged"]) for one in figures] == [("bob", True), ("ann", False)]
    printed = capsys.readouterr().out
    assert "Annotator bob: reliability -0.20 from 10 judgements" in printed and "ann:" not in printed


def test_the_temperature_is_that_of_lowest_nll():
    generator = torch.Generator().manual_seed(0)
    gaps = torch.randn(4000, generator=generator, dtype=torch.float64)
    won = torch.rand(4000, generator=generator) < gaps.sigmoid()
    scores = torch.stack([gaps, torch.zeros_like(gaps)], dim=1).flatten() * 2.5  # overconfident by 2.5
    sides = [(1, -1) if first else (-1, 1) for first in won]
    rows = [
        Row(prompt_ids=(), completion_ids=(0,), mask=(True,), atom=i, side=side)
        for i, pair_sides in enumerate(sides)
        for side in pair_sides
    ]
    labels = LabelModel(LabelConfig())
    temperature = best_temperature(scores, rows, labels)
    assert temperature == pytest.approx(2.5, rel=0.08)
    best = held_out_figures(scores / temperature, rows, labels)["nll"]
    for other in (0.97, 1.03):
        assert held_out_figures(scores / (other * temperature), rows, labels)["nll"] > best


def test_calibration_is_folded_into_the_head(model, run, tmp_path):
    held_out, config = some_pairs(60, seed=1), configured(model)
    raw, _, _ = run(replace(config, calibrate=False), some_pairs(60), held_out, "raw")
    made, _, figures = run(config, some_pairs(60), held_out, "calibrated")
    rows = [row for rows in reward_rows(held_out, made) for row in rows]
    wanted = [score / figures["temperature"] for score in raw.scores(rows)]
    assert made.scores(rows) == pytest.approx(wanted, abs=1e-5)
    assert figures["temperature"] != pytest.approx(1.0, abs=0.01)
    quality = reward.pair_quality(made, held_out, [])
    before = reward.pair_quality(raw, held_out, [])
    assert quality.nll < before.nll and quality.accuracy == before.accuracy
    assert quality.at_temperature(1 / figures["temperature"]).nll == pytest.approx(before.nll, abs=1e-5)
    made.save(tmp_path / "rm")
    assert load_reward_scorer(str(tmp_path / "rm")).scores(rows) == pytest.approx(wanted, abs=1e-5)


def test_too_few_to_calibrate(model, run, capsys):
    _, _, figures = run(configured(model), some_pairs(20), some_pairs(19, seed=1))
    assert figures == {} and "Not calibrated: fewer than 20 judgements" in capsys.readouterr().out


def test_long_prompts_are_cut_and_counted(model, run, capsys):
    talk = tuple({"role": r, "content": "on and on " * 4} for r in ("user", "assistant", "user"))
    long = [replace(p, prompt=replace(p.prompt, messages=(*talk, *p.prompt.messages))) for p in some_pairs(8)]
    config = replace(configured(model), max_tokens=90)
    with pytest.raises(DataError, match="longer than the limit of 90 tokens"):
        run(config, long, [], "refused")
    wordy = [replace(p, chosen=Completion(text="on " * 40)) for p in long]
    with pytest.raises(DataError, match=r"none of them is cut, a completion never is\."):
        run(replace(config, long="cut"), wordy, [], "wordy")
    capsys.readouterr()
    made, _, _ = run(replace(config, long="cut"), long, [], "cut")
    assert "16 of 16 prompts were cut to fit 90 tokens, oldest first" in capsys.readouterr().out
    assert (made.record.max_tokens, made.record.long) == (90, "cut")


@pytest.mark.parametrize(
    ("part", "options", "expected"),
    [
        (LabelConfig, {"tie_parameter": 0.5}, "labels.ties to be rao_kupper or davidson"),
        (LabelConfig, {"ties": "davidson", "tie_parameter": math.inf}, "0 (learn it) or more"),
        (LabelConfig, {"strengths": {"much": math.nan}}, "finite margins"),
        (LabelConfig, {"annotator_weights": {"ann": math.nan}}, "finite weights of 0 or more"),
        (EnsembleConfig, {"kind": "models"}, "2 or more members"),
        (LengthConfig, {"coef": 3.0}, "length.kind to be penalty"),
        (LengthConfig, {"kind": "penalty", "coef": math.inf}, "a positive number"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(part, options, expected):
    with pytest.raises(ConfigError, match=re.escape(f"; expected {expected}.")):
        part(**options)


def test_more_tokens_than_positions(model, run):
    with pytest.raises(ConfigError, match=r"positions for 2048 tokens. Type: --max_tokens 2048"):
        run(replace(configured(model), max_tokens=4096), some_pairs(8), [])


def test_the_tiny_ensemble(model, files, tmp_path):
    flags = ("--model.name", model, "--data.train", files[0], "--output", str(tmp_path / "run"))
    assert main(["reward", str(CONFIGS / "tiny" / "reward_ensemble.yaml"), *flags]) == 0
    assert load_reward_scorer(str(tmp_path / "run" / "checkpoints" / "final")).members == 2


def test_test_prompts_were_not_seen(model, files, tmp_path):
    train, _ = files
    config = configured(model, data=DataConfig(train=train), test=train, output=str(tmp_path / "run"))
    with pytest.raises(DataError, match="have a prompt that is trained on"):
        reward.run(config)


def test_an_encoder_takes_conversations(run, tmp_path):
    tokenizer = byte_tokenizer(chat_template=None)
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=259, pad_token_id=0, **small)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    made, _, _ = run(configured(str(tmp_path / "bert")), some_pairs(30), some_pairs(10, seed=1))
    made.save(tmp_path / "rm")
    served = rewards.BradleyTerry.load(str(tmp_path / "rm")).score_pairs(some_pairs(3))
    assert all(math.isfinite(score.total) for side in served for score in side)


def test_the_best_pass_comes_back_with_its_label_model(model, run):
    pairs = [replace(p, tie=float(i % 4 == 0), annotator=("a", "b")[i % 2]) for i, p in enumerate(some_pairs(40))]
    config = configured(model, labels=LabelConfig(ties="davidson", reliability="learn"))
    made, path, _ = run(config, pairs, pairs[:30])
    assert made.record.tie_model == "davidson" and made.record.tie_parameter > 0
    assert set(made.record.reliability) == {"a", "b"}
    nll = read(path).series("nll", "eval")[1]
    assert len(nll) == 2
    made.save(path / "rm")
    assert json.loads((path / "rm" / "reward_model.json").read_text())["reliability"].keys() == {"a", "b"}


def scored_pairs(gaps):
    """Rows of pairs, the first side preferred, and their scores for given gaps."""
    rows = [
        (
            Row(prompt_ids=(), completion_ids=(0,), mask=(True,), atom=i, side=1),
            Row(prompt_ids=(), completion_ids=(1,), mask=(True,), atom=i, side=-1),
        )
        for i in range(len(gaps))
    ]
    return rows, [torch.tensor([value]) for gap in gaps for value in (gap, 0.0)]


@pytest.mark.parametrize(("calibrate", "kept"), [(True, "second"), (False, "first")])
def test_a_pass_that_ranks_better_is_kept_where_its_confidence_can_be_mended(calibrate, kept):
    timid = [0.3] * 26 + [-0.3] * 14  # 65 % right, NLL .661
    bold = [3.0] * 30 + [-3.0] * 10  # 75 % right, but so sure of it that its NLL is .799; .562 at its temperature
    rows, first = scored_pairs(timid)
    _, second = scored_pairs(bold)
    scripted = iter([(first, "first"), (second, "second")])
    engine = SimpleNamespace(restored=None)

    def outputs(_):
        found, engine.now = next(scripted)
        return found

    engine.outputs, engine.snapshot = outputs, lambda: engine.now
    engine.restore = lambda weights: setattr(engine, "restored", weights)
    keeper = reward_fit._Keeper(engine, LabelModel(LabelConfig()), rows, 1, calibrate)
    looks = [keeper.look(), keeper.look()]
    assert [look["nll"] for look in looks] == pytest.approx([0.6594, 0.7986], abs=1e-3)
    if calibrate:
        assert looks[1]["nll/calibrated"] == pytest.approx(0.5623, abs=1e-4)
    keeper.restore()
    assert engine.restored == kept


def test_the_head_reads_numbers_of_this_size(model):
    made = reward.new_model(ModelPart(name=model), 0)
    rows = [made.encode(p.prompt, p.chosen) for p in some_pairs(6)]
    with torch.no_grad():
        hidden = suffix_hidden(
            made.decoder, [r.prompt_ids[:-1] for r in rows], [(*r.prompt_ids[-1:], *r.completion_ids) for r in rows]
        )
    last = torch.tensor([m for r in rows for m in (False, *r.mask)])
    assert made.head_input_size(rows) == pytest.approx(float(hidden[last].pow(2).mean().sqrt()), rel=1e-5)


@pytest.mark.parametrize(("head_lr", "size", "moved"), [(0.02, 1.0, 0.02), (0.0, 0.1, 0.03), (0.0, 5.0, 0.003)])
def test_how_fast_the_head_learns(head_lr, size, moved, model, tmp_path, monkeypatch):
    """The first step of AdamW moves every weight by its learning rate."""
    monkeypatch.setattr("prefrl.model.reward_model.RewardModel.head_input_size", lambda *_: size)
    config = replace(configured(model, part={"head_lr": head_lr}), epochs=1, batch_size=100, calibrate=False)
    with RunFolder.create(tmp_path / "run", "reward", {}) as folder:
        made = reward.new_model(config.model, 0)
        reward.fit(folder, made, some_pairs(20), [], config)
        folder.finish({})
    assert float(made.output_layer.weight.detach().abs().max()) == pytest.approx(moved, rel=1e-3)


def test_a_share_of_the_prompts_is_set_aside(model, files, tmp_path):
    """The test prompts are the same whatever the seed, and in no other part."""
    train, _ = files
    parts = {}
    for seed in (0, 1):
        config = configured(model, seed=seed, test_fraction=0.3, data=DataConfig(train=train, eval_fraction=0.3))
        parts[seed] = [{p.prompt.id for p in part} for part in reward._read(config)]
    for fit_on, watched, test in parts.values():
        assert 10 < len(test) < 32 and not test & (fit_on | watched) and not fit_on & watched
        assert len(fit_on | watched | test) == 70
    assert parts[0][2] == parts[1][2] and parts[0][1] != parts[1][1]
    with pytest.raises(ConfigError, match="test and test_fraction are both set"):
        configured(model, test="x.jsonl", test_fraction=0.3)
