"""`prefrl prm` end to end: what is learnt, what is cut and counted, what is scored and optimized with it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from prefrl.cli import main
from prefrl.config import DataConfig, PRMConfig, RewardModelConfig, StepsConfig
from prefrl.data.steps import Stepped
from prefrl.errors import ConfigError, DataError
from prefrl.evaluate.run_folder import read
from prefrl.model.engine import Engine
from prefrl.model.process_model import load_process_model
from prefrl.policy.step_losses import step_objective
from prefrl.recipes.prm import new_model, read_solutions
from prefrl.recipes.prm_baselines import baselines, features
from prefrl.recipes.prm_fit import step_rows, temperature_of, weighted
from prefrl.types import Prompt

CONFIGS = Path(__file__).parents[2] / "configs"


def solutions(count=24):
    """Steps that add 1, and one in two solutions with a step that does not."""
    rows = []
    for i in range(count):
        steps = [f"{i + k}+1={i + k + 1}." for k in range(3)]
        labels = [True, True, True]
        if i % 2:
            steps[1], labels[1] = f"{i + 1}+1={i + 9}?", False
        rows.append({"prompt": f"Count from {i}", "completions": steps, "labels": labels})
    return rows


@pytest.fixture
def stepwise(write):
    return write("steps.jsonl", solutions())


def go(*arguments):
    assert main([str(argument) for argument in arguments]) == 0


def train(model, data, output, *flags):
    go("prm", CONFIGS / "tiny" / "prm.yaml", "--model.name", model, "--data.train", data, "--output", output, *flags)
    return read(output)


def test_it_trains_measures_and_saves(model, write, tmp_path, capsys):
    flags = ("--test_fraction", "0.3", "--epochs", "8", "--patience", "0", "--model.lr", "1e-2")
    run = train(model, write("more.jsonl", solutions(60)), tmp_path / "run", *flags)
    assert run.state == "finished" and run.kind == "prm"
    summary = run.status["summary"]
    assert summary["measured_on"] == "test"
    assert summary["auroc"] > 0.95 and summary["f1"] > 0.85  # the wrong steps end with a question mark
    assert summary["baselines"]["always the same"]["f1"] == 0.0
    assert {"place", "length", "place and length"} <= set(summary["baselines"])
    assert {"temperature", "threshold", "nll/raw", "nll/calibrated"} == set(summary["calibration"])
    assert summary["calibration"]["nll/calibrated"] <= summary["calibration"]["nll/raw"]
    page = (run.path / "report.html").read_text()
    assert "Process reward model" in page and "First errors" in page and "Calibration" in page
    assert 'src="http' not in page
    steps, nll = run.series("nll", "eval")
    assert len(steps) == 8 and nll[-1] < nll[0]
    assert run.series("steps/auroc", "eval")[1][-1] > 0.9
    loaded = load_process_model(str(run.path))
    assert loaded.record.threshold == pytest.approx(summary["threshold"])
    assert loaded.record.max_tokens == 1024
    assert "first-error F1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    [
        ("--head", "classes", "--steps.marker", " ;"),
        ("--head", "tokens", "--steps.good", "+", "--steps.bad", "-", "--model.lora", "2", "--loss", "mse"),
        ("--model.lora", "2", "--calibrate", "false", "--threshold", "0.4", "--loss", "binomial"),
    ],
)
def test_heads_losses_and_adapters(flags, model, stepwise, tmp_path):
    run = train(model, stepwise, tmp_path / "run", *flags)
    assert run.state == "finished" and run.status["summary"]["measured_on"] == "held-out"
    loaded = load_process_model(str(run.path))
    if "--threshold" in flags:
        assert loaded.record.threshold == 0.4
    first = run.series("nll", "train")[1][0]
    assert math.isfinite(first)


def test_the_same_seed_gives_the_same_numbers(model, stepwise, tmp_path):
    runs = [train(model, stepwise, tmp_path / name) for name in ("one", "two")]
    losses = [run.series("loss", "train")[1] for run in runs]
    assert losses[0] == losses[1]


def test_problems_are_never_on_two_sides(model, write):
    rows = [{**row, "prompt": row["prompt"]} for row in solutions() for _ in range(2)]
    config = PRMConfig(data=DataConfig(train=write("twice.jsonl", rows), eval_fraction=0.3), test_fraction=0.3)
    parts = [{one.prompt.text for one in part} for part in read_solutions(config)]
    assert all(parts) and not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    assert sum(len(part) for part in read_solutions(config)) == len(rows)


def configured(model, **more):
    return PRMConfig(model=RewardModelConfig(name=model), data=DataConfig(train="x"), **more)


def stepped(labels, steps=("ab\n", "cd\n", "ef\n"), counts=()):
    return Stepped(prompt=Prompt(id="p", text="q"), steps=steps, labels=labels, counts=counts)


def test_labels_of_cut_steps_go_with_them_and_never_to_others(model, capsys):
    made = new_model(configured(model))
    one = stepped((1.0, 0.25, 0.0))
    room = made.encode(one.prompt, one.steps).tokens
    made.record = type(made.record)(max_tokens=room - 1)
    config = configured(model, max_tokens=room - 1)
    found = step_rows([one], made, config, "solutions")
    (row,) = found.rows
    assert row.streams["labels"][torch.tensor(row.mask)].tolist() == [1.0, 0.25]
    assert (found.labelled, found.cut) == (2, 1)
    assert (
        f"solutions: 1 steps of 1 solutions do not fit into {room - 1} tokens and are cut, 1 of them with a label"
        in (capsys.readouterr().out)
    )


def test_an_ignored_step_is_not_even_computed(model):
    made = new_model(configured(model))
    (row,) = step_rows([stepped((1.0, None, None))], made, configured(model), "solutions").rows
    assert sum(row.mask) == 1 and len(row.completion_ids) == len("ab\n")
    assert row.streams["labels"].isfinite().all()


def test_a_solution_without_a_label_that_fits_is_counted(model, capsys):
    made = new_model(configured(model))
    rows = step_rows([stepped((None, None, None)), stepped((1.0, 1.0, 0.0))], made, configured(model), "solutions").rows
    assert len(rows) == 1
    assert "1 of 2 solutions have no labelled step that fits" in capsys.readouterr().out
    with pytest.raises(DataError, match="none of 1 has a labelled step within 1024 tokens"):
        step_rows([stepped((None, None, None))], made, configured(model), "solutions")


def test_long_solutions_are_refused_where_that_is_asked_for(model):
    made = new_model(configured(model))
    with pytest.raises(DataError, match=r"longer than the limit of 4 tokens for prompt and steps \(max_tokens\)"):
        step_rows([stepped((1.0, 1.0, 0.0))], made, configured(model, max_tokens=4, long="refuse"), "solutions")


@pytest.mark.parametrize("loss", ["bce", "binomial", "mse"])
def test_denominators_are_those_of_the_whole_update(loss, model):
    """However the rows are split into micro-batches, the gradient is that of one weighted mean over steps."""
    found = []
    for budget in (4096, 40):
        config = configured(model, loss=loss)
        made = new_model(config)
        torch.nn.init.normal_(made.carrier.head.weight, generator=torch.Generator().manual_seed(1))
        several = [
            stepped((1.0, 0.25, None), counts=((8, 8), (2, 8), (0, 8))),
            stepped((0.0, None, 1.0), steps=("x\n", "yz\n", "u\n")),
            stepped((1.0,), steps=("a long one indeed\n",)),
        ]
        rows = step_rows(several, made, config, "solutions").rows
        engine = Engine(made, RewardModelConfig(token_budget=budget))
        metrics = engine.step(weighted(rows, engine), lambda batch: step_objective(batch, loss))
        found.append(metrics)
    assert found[0]["grad_norm"] > 0
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_weights_of_an_update_sum_to_one_by_how_often_steps_were_tried(model):
    config = configured(model, loss="binomial")
    made = new_model(config)
    rows = step_rows([stepped((1.0, 0.25, 0.0), counts=((12, 12), (2, 8), None))], made, config, "solutions").rows
    (row,) = weighted(rows, Engine(made, RewardModelConfig()))
    assert row.streams["ce"][torch.tensor(row.mask)].tolist() == pytest.approx([12 / 21, 8 / 21, 1 / 21])


def test_the_temperature_is_that_of_lowest_nll():
    odds = [[4.0] * 10, [4.0] * 10]  # sure of what is right 3 times in 4
    labels = [(*[1.0] * 8, 0.0, 0.0), (*[1.0] * 7, *[0.0] * 3)]
    several = [stepped(label, steps=("a\n",) * 10) for label in labels]
    found = temperature_of(odds, several)
    assert found["temperature"] == pytest.approx(4.0 / math.log(3.0), rel=1e-3)
    assert found["nll/calibrated"] == pytest.approx(0.562335, abs=1e-5)
    assert temperature_of([[1.0]], [stepped((1.0,), steps=("a",))]) == {}


def test_a_baseline_of_place_and_length_finds_what_has_nothing_to_do_with_words():
    long, short = "x" * 60, "x"
    several = [
        Stepped(prompt=Prompt(id=str(i), text=f"q{i}"), steps=(short, long) if i % 2 else (short, short),
                labels=(1.0, 0.0) if i % 2 else (1.0, 1.0))
        for i in range(20)
    ]  # fmt: skip
    assert features(several[1])[1][:3] == pytest.approx([1.0, math.log(2), 1.0])
    found = baselines(several[:10], several[:10], several[10:])
    assert found["place and length"].f1.mean == 1.0 and found["length"].f1.mean == 1.0
    assert found["always the same"].f1.mean == 0.0


def test_wrong_settings_are_refused(model, stepwise, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"head is tokens.*steps\.good and steps\.bad"):
        PRMConfig(head="tokens")
    with pytest.raises(ConfigError, match="head is scalar"):
        PRMConfig(steps=StepsConfig(good="+", bad="-"))
    with pytest.raises(ConfigError, match=r"steps\.separator is empty"):
        StepsConfig(separator="")
    assert main(["prm", "--model.name", model, "--output", str(tmp_path / "out")]) == 2
    assert "data.train is empty" in capsys.readouterr().err
    flags = ("--data.train", stepwise, "--max_tokens", "999999", "--output", str(tmp_path / "more"))
    assert main(["prm", "--model.name", model, *flags]) == 2
    assert "has positions for" in capsys.readouterr().err


@pytest.fixture(scope="module")
def process_model(model, tmp_path_factory):
    """A run folder of a process reward model on the tiny model."""
    folder = tmp_path_factory.mktemp("prm")
    data = folder / "steps.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in solutions()))
    train(model, str(data), folder / "run", "--steps.separator", "\n")
    return str(folder / "run")


def test_score_writes_one_number_and_what_it_is_made_of(process_model, write, tmp_path, capsys):
    rows = [{"prompt": "Count from 1", "completion": "1+1=2.\n2+1=3."}, {"prompt": "q", "completion": "a"}]
    output = tmp_path / "scores.jsonl"
    rewards = f"[{{kind: process, path: {process_model}, aggregate: product}}]"
    go("score", "--data", write("texts.jsonl", rows), "--rewards", rewards, "--output", output)
    first, second = (json.loads(line)["score"] for line in output.read_text().splitlines())
    assert first["parts"]["n_steps"] == 2 and second["parts"]["n_steps"] == 1
    assert first["value"] == pytest.approx(first["parts"]["product"])
    assert second["value"] == pytest.approx(second["parts"]["last"])
    assert "n_steps" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce", "rloo", "grpo"])
def test_every_algorithm_with_step_rewards_takes_it_by_configuration(algorithm, model, process_model, write, tmp_path):
    prompts = write("prompts.jsonl", [{"prompt": f"Count from {i}"} for i in range(6)])
    rewards = (
        f"[{{kind: process, path: {process_model}, weight: 0.5}}, {{kind: length_band, low: 3, high: 6, unit: tokens}}]"
    )
    flags = ("--policy.name", model, "--data.train", prompts, "--rewards", rewards, "--algorithm.name", algorithm)
    go("rl", CONFIGS / "tiny" / "prm_rl.yaml", "--output", tmp_path / "run", *flags)
    run = read(tmp_path / "run")
    assert run.state == "finished"
    assert {"reward/part/process", "reward/part/process/n_steps"} <= set(run.names("train"))


def test_implicit_process_rewards_learn_along_by_configuration(model, write, tmp_path):
    prompts = write("prompts.jsonl", [{"prompt": f"Count from {i}"} for i in range(6)])
    outcome = "{kind: length_band, low: 3, high: 6, unit: tokens}"
    rewards = f"[{{kind: implicit_process, path: {model}, lr: 1.0e-3, outcome: {outcome}}}, {outcome}]"
    flags = ("--policy.name", model, "--data.train", prompts, "--rewards", rewards)
    go("rl", CONFIGS / "tiny" / "prm_rl.yaml", "--output", tmp_path / "run", *flags)
    names = set(read(tmp_path / "run").names("train"))
    assert any(name.endswith("implicit_process/nll") for name in names), sorted(names)


@pytest.mark.parametrize("config", sorted((CONFIGS / "prm").glob("*.yaml")), ids=lambda path: path.stem)
def test_full_size_configurations_are_valid(config, capsys):
    go("prm", config, "--print-config")
    assert "test_fraction: 0.25" in capsys.readouterr().out
