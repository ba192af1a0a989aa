"""The loop through the command line: what it leaves, and that it ends the same however often it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from prefrl.cli import main
from prefrl.data.preferences import PreferenceStore
from prefrl.evaluate.run_claim import alone
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.model.reward_model import load_reward_model
from prefrl.recipes import loop
from prefrl.recipes.loop_journal import Journal

ROOT = Path(__file__).parents[2]
TINY = ROOT / "configs" / "tiny" / "loop.yaml"
CLOCKS = ("time", "seconds", "tokens_per_second")
PHASES = ("sample", "select", "label", "fit", "optimize", "answer", "evaluate")


@pytest.fixture(scope="module")
def flags(model, tmp_path_factory):
    """What every loop here is given besides its output."""
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    rows = [{"prompt": [{"role": "user", "content": f"Say {i}"}], "answer": str(i)} for i in range(16)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return (str(TINY), "--policy.name", model, "--reward.model.name", model, "--data.train", str(path))


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory):
    """A loop that nobody interrupted."""
    path = tmp_path_factory.mktemp("loop") / "run"
    assert go(flags, path) == 0
    return path


def go(flags, output, *more):
    return main(["loop", *flags, "--output", str(output), *more])


def lines(path):
    """Rows of a .jsonl file without what a clock says."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.get("label", {}).pop("time", None)
    return [{k: v for k, v in row.items() if k not in CLOCKS} for row in rows]


def weights(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*.safetensors"))}


def assert_same(one, other):
    """The same weights, metrics, samples and files of every round."""
    assert weights(one / "checkpoints") == weights(other / "checkpoints")
    names = sorted(str(f.relative_to(one)) for f in one.rglob("*.jsonl"))
    assert names == sorted(str(f.relative_to(other)) for f in other.rglob("*.jsonl"))
    for name in names:
        assert lines(one / name) == lines(other / name), name
    journals = [json.loads((folder / "loop.json").read_text())["phases"] for folder in (one, other)]
    figures = [[(phase["name"], phase["figures"]) for phase in phases] for phases in journals]
    assert figures[0] == figures[1]


def test_what_a_loop_leaves(whole):
    run = read(whole)
    assert (run.kind, run.state) == ("loop", "finished")
    rounds = [line for line in run.metrics if line["phase"] == "round"]
    assert [line["round"] for line in rounds] == [1, 2]
    assert {"win_rate", "win_low", "win_high", "accuracy", "ece", "kl", "reward_gain", "labels"} <= set(rounds[1])
    assert rounds[1]["labels"] == rounds[0]["labels"] + rounds[1]["labels_now"]
    assert set(run.status["summary"]) == {"round 1", "round 2"}
    page = (whole / "report.html").read_text()
    assert "After 2 rounds" in page and "Simulated annotator" in page
    start, end = (load(str(whole / "checkpoints" / name)) for name in ("round_1/policy", "final"))
    last = load(str(whole / "checkpoints" / "round_2" / "policy"))
    assert any(not torch.equal(a, b) for a, b in zip(start.module.parameters(), end.module.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(last.module.parameters(), end.module.parameters(), strict=True))
    assert load_reward_model(str(whole / "checkpoints" / "round_2" / "reward")).is_decoder


def test_every_row_says_its_round_and_its_checkpoints(whole):
    run = read(whole)
    assert all({"round", "checkpoint/policy"} <= set(line) for line in [*run.metrics, *run.samples])
    trained = [line for line in run.metrics if line["phase"] == "policy_2"]
    assert {(line["round"], line["checkpoint/policy"], line["checkpoint/reward"]) for line in trained} == {(2, 1, 2)}
    samples = lines(whole / "rounds" / "2" / "samples.jsonl")
    assert {(row["round"], row["checkpoint"]) for row in samples} == {(2, "round_1/policy"), (2, "start")}
    items = lines(whole / "rounds" / "2" / "items.jsonl")
    assert {item["why"] for item in items} == {"random", "uncertainty", "held out"}
    for item in items:
        assert item["round"] == 2 and set(item["checkpoints"]) <= {"round_1/policy", "start"}
        if item["why"] != "held out":
            assert item["judge"] == "round_1/reward" and item["uncertainty"] > 0
    labels = lines(whole / "rounds" / "2" / "judgements.jsonl")
    assert {row["item"]["round"] for row in labels} == {1, 2}
    with PreferenceStore(whole / "preferences.db", create=False) as store:
        assert len(store.labels()) == len(labels) == 28


def test_held_out_prompts_are_not_trained_on(whole):
    held_out = {row["prompt_id"] for row in lines(whole / "rounds" / "0" / "answers.jsonl")}
    for number in (1, 2):
        rows = lines(whole / "rounds" / str(number) / "items.jsonl")
        assert all((row["prompt"]["id"] in held_out) == (row["why"] == "held out") for row in rows)
        assert not held_out & {row["prompt_id"] for row in lines(whole / "rounds" / str(number) / "samples.jsonl")}


def test_the_same_seed_gives_the_same_loop(whole, flags, tmp_path):
    assert go(flags, tmp_path / "again") == 0
    assert_same(whole, tmp_path / "again")


class Dead(BaseException):
    """A process that is no more, as far as one process can show it."""


def no_report(folder, journal, about):
    """Stands in for a report, which takes most of the time of a tiny loop."""
    return folder.report


class Fuse:
    """Lets everything that leaves a trace happen so many times, and then dies: before it happens, or after."""

    def __init__(self, monkeypatch):
        self.left, self.before, self.blown = 0, True, 0
        monkeypatch.setattr(loop, "write", no_report)
        for owner, name in (
            (loop, "write"),
            (Journal, "save"),
            (os, "truncate"),
            (RunFolder, "log"),
            (RunFolder, "samples"),
            (PreferenceStore, "submit"),
            (PreferenceStore, "add_items"),
            (LanguageModel, "sample"),
            (LanguageModel, "save"),
            (torch.optim.AdamW, "step"),
        ):
            monkeypatch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, function):
        def burning(*args, **kwargs):
            self.left -= 1
            if self.left == 0 and self.before:
                self.blow()
            result = function(*args, **kwargs)
            if self.left == 0:
                self.blow()
            return result

        return burning

    def blow(self):
        self.blown += 1
        raise Dead


def test_an_interrupted_loop_ends_as_if_it_had_not_been(whole, flags, tmp_path, monkeypatch):
    output, fuse, attempts = tmp_path / "run", Fuse(monkeypatch), 0
    places = set()
    while True:
        attempts += 1
        fuse.left, fuse.before = 2 + attempts // 2, attempts % 2 == 0
        try:
            assert go(flags, output) == 0
            break
        except Dead:
            journal = output / "loop.json"
            done = json.loads(journal.read_text())["phases"] if journal.exists() else []
            places.add(done[-1]["name"] if done else "")
    assert attempts > 20 and len(places) >= 8, (attempts, places)
    assert_same(whole, output)


def test_a_loop_that_died_between_any_two_phases(whole, flags, tmp_path, monkeypatch):
    """At every boundary twice: the phase is done but not written down; it is, but nothing after it is done."""
    output, real, seen = tmp_path / "run", Journal.save, []

    def save(self):
        last = next(reversed(self.entries), "")
        if last not in seen:
            seen.append(last)
            raise Dead
        real(self)
        if seen.count(last) == 1 and last != "end":  # once that is written down the loop is over
            seen.append(last)
            raise Dead

    monkeypatch.setattr(Journal, "save", save)
    monkeypatch.setattr(loop, "write", no_report)
    while True:
        try:
            assert go(flags, output) == 0
            break
        except Dead:
            continue
    phases = [f"{n}/{name}" for n in (1, 2) for name in PHASES]
    assert seen == [*(name for phase in ("", "prompts", "0/answer", *phases) for name in (phase, phase)), "end"]
    assert_same(whole, output)


@pytest.mark.slow
def test_a_killed_loop_ends_as_if_it_had_not_been(whole, flags, tmp_path):
    output = tmp_path / "run"
    command = [sys.executable, "-m", "prefrl.cli", "loop", *flags, "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    marks = ("rounds/1/samples.jsonl", "checkpoints/round_1", "rounds/1/answers.jsonl", "rounds/2/judgements.jsonl")
    for mark in marks:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not (output / mark).exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert read(output).state == "running"
    assert go(flags, output) == 0
    assert_same(whole, output)


def test_a_finished_loop_is_left_alone(whole, flags, capsys):
    assert go(flags, whole) == 2
    assert "already holds a run of kind 'loop'" in capsys.readouterr().err


@pytest.fixture
def interrupted(flags, tmp_path, monkeypatch):
    """A loop that died in its second round."""

    def fit(self, number, real=loop.Loop.fit):
        if number == 2:
            raise Dead
        real(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "fit", fit)
        with pytest.raises(Dead):
            go(flags, tmp_path / "run")
    return tmp_path / "run"


def test_another_configuration_is_refused_by_name(interrupted, flags, capsys):
    assert go(flags, interrupted, "--rounds", "5", "--sampling.temperature", "0.5") == 2
    error = capsys.readouterr().err
    assert "rounds was 2 and is 5" in error and "sampling.temperature was 1.0 and is 0.5" in error
    assert "--overwrite" in error and f"prefrl loop {interrupted}/config.yaml" in error
    assert main(["loop", str(interrupted / "config.yaml")]) == 0
    assert read(interrupted).state == "finished"


def test_checkpoints_say_what_they_were_paid_by_and_serve(whole, flags, tmp_path, capsys):
    places = [whole / "checkpoints" / name for name in ("round_1/policy", "round_2/policy", "final")]
    first, second, final = (json.loads((place / "reward.json").read_text())["id"] for place in places)
    assert first != second == final
    rewards = f"[{{kind: bradley_terry, path: {whole}/checkpoints/round_2/reward}}]"
    evaluated = ("--model", str(places[2]), "--data.train", flags[-1], "--rewards", rewards)
    assert main(["eval", "policy", *evaluated, "--output", str(tmp_path / "eval")]) == 0
    trained = ("--policy.name", str(places[1]), "--data.train", flags[-1], "--rewards", rewards, "--steps", "1")
    assert main(["rl", *trained, "--prompts_per_step", "2", "--output", str(tmp_path / "rl")]) == 0


def test_another_judge_or_taste_is_refused(flags, tmp_path, capsys, monkeypatch):
    code = tmp_path / "taste.py"
    code.write_text("def short(text):\n    return -float(len(text))\n")
    judged = ("--judge", f"[{{kind: '{code}:short'}}]")

    def optimize(self, number):
        raise Dead

    with monkeypatch.context() as patch, pytest.raises(Dead):
        patch.setattr(loop.Loop, "optimize", optimize)
        go(flags, tmp_path / "run", *judged)
    began = json.loads((tmp_path / "run" / "loop.json").read_text())["phases"][0]["figures"]
    assert set(began) == {"prompts", "judge", "utility"}
    code.write_text("def short(text):\n    return float(len(text))\n")
    assert go(flags, tmp_path / "run", *judged) == 2
    assert "The judge, with its code and weights, is not what the loop" in capsys.readouterr().err


def test_overwriting_starts_anew(interrupted, flags, whole):
    assert go(flags, interrupted, "--overwrite") == 0
    assert_same(whole, interrupted)
    assert "overwrite: false" in (interrupted / "config.yaml").read_text()


def test_other_prompts_are_refused(interrupted, flags, capsys):
    data = Path(flags[-1])
    before = data.read_text()
    data.write_text(before.replace("Say 3", "Shout 3"))
    try:
        assert go(flags, interrupted) == 2
    finally:
        data.write_text(before)
    assert "The prompts are not what the loop in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("loop.json", "{", "loop.json cannot be read"),
        ("loop.json", '{"config": {}, "phases": [{"name": "x"}]}', "loop.json cannot be read"),
        ("loop.json", None, "loop.json cannot be read"),
        ("rounds/1/items.jsonl", "{}\n", "has changed since the phase '1/select'"),
        ("rounds/2/judgements.jsonl", None, "is missing, though the phase '2/label'"),
        ("checkpoints/round_1/policy/model.safetensors", "x", "has changed since the phase '1/optimize'"),
        ("metrics.jsonl", "", "metrics.jsonl is shorter"),
        ("preferences.db", "no database at all " * 300, "preferences.db as a preference store"),
    ],
)
def test_a_damaged_loop_says_what_is_damaged(name, damage, says, interrupted, flags, capsys):
    path = interrupted / name
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    path.unlink() if damage is None else path.write_text(damage)
    if name == "preferences.db":  # a phase that is done does not look into it again
        journal = json.loads((interrupted / "loop.json").read_text())
        journal["phases"] = [p for p in journal["phases"] if p["name"] != "2/label"]
        (interrupted / "loop.json").write_text(json.dumps(journal))
    assert go(flags, interrupted) == 2
    assert says in capsys.readouterr().err


def test_two_at_once_are_refused(interrupted, flags, capsys):
    with alone(interrupted):
        assert go(flags, interrupted) == 2
    assert "Another process is at work" in capsys.readouterr().err


def test_reward_models_of_a_loop_are_finished_for_serving(flags, tmp_path, monkeypatch):
    monkeypatch.setattr("prefrl.recipes.reward_serving.FEWEST", 1)
    monkeypatch.setattr("prefrl.recipes.reward_fit.FEWEST", 1)
    more = ("--rounds", "1", "--steps", "1", "--reward.data.eval_fraction", "0.5")
    assert go(flags, tmp_path / "run", *more) == 0
    record = load_reward_model(str(tmp_path / "run" / "checkpoints" / "round_1" / "reward")).record
    assert record.temperature != 1.0 and record.std is not None
    assert read(tmp_path / "run").status["summary"]["round 1"]["temperature"] == record.temperature
