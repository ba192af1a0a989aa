"""A run that breaks off goes on from its last checkpoint, and ends bit for bit as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prefrl.cli import main
from prefrl.errors import RunError
from prefrl.evaluate.run_claim import alone
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.state import load_state, save_state
from prefrl.recipes import resuming

CONFIGS = Path(__file__).parents[2] / "configs" / "tiny"
CLOCKS = ("time", "seconds", "tokens_per_second")
ADAPTIVE = "{name: ppo, group_size: 4, kl: {coef: 0.1, target: 0.5}, critic: {kind: separate}}"
NORMALISED = "[{kind: length_band, low: 3, high: 6, unit: characters, normalise: running}]"
# command, config, column of its data, flags, and after which line of training it breaks off
RUNS = {
    "grpo": ("rl", "grpo", "prompts", ("--steps", "4", "--eval_every", "2"), 3),
    "ppo, everything that moves": (
        *("rl", "ppo", "prompts"),
        ("--steps", "4", "--algorithm", ADAPTIVE, "--rewards", NORMALISED, "--policy.schedule", "cosine"),
        3,
    ),
    "a curriculum": ("rl", "grpo", "prompts", ("--steps", "4", "--curriculum.kind", "retire"), 3),
    "dynamic sampling": ("rl", "dapo", "prompts", ("--steps", "3"), 2),
    "distillation": ("distill", "opsd", "prompts", ("--steps", "3"), 2),
    "dpo": ("dpo", "dpo", "pairs", ("--epochs", "2"), 4),
    "kto": ("dpo", "kto", "pairs", ("--epochs", "2"), 2),
    "sft": ("sft", "sft", "demos", (), 4),
    "a reward model": ("reward", "reward", "pairs", ("--epochs", "3", "--patience", "0"), 4),
    "ties and annotators": (
        *("reward", "reward", "judged"),
        ("--labels.ties", "davidson", "--labels.reliability", "learn", "--patience", "0"),
        4,
    ),
    "the second of an ensemble": ("reward", "reward_ensemble", "pairs", ("--epochs", "2"), 7),
    "a process reward model": ("prm", "prm", "steps", ("--epochs", "3"), 5),
    "the yes-probability": ("yes", "yes", "answers", (), 4),
    "labels of steps": ("steplabels", "step_labels", "demos", (), 1),
    "control": ("control", "control", None, ("--steps", "4"), 3),
    "rejection": ("rejection", "rejection", "prompts", ("--rounds", "3"), 5),
    "rejection going on": ("rejection", "rejection", "prompts", ("--rounds", "3", "--restart", "false"), 5),
}


def rows_of(column):
    if column == "prompts":
        return [{"prompt": [{"role": "user", "content": f"Say {i}"}], "answer": str(i)} for i in range(8)]
    if column == "demos":
        return [{"prompt": f"Say {i}", "completion": f"{i} it is"} for i in range(12)]
    if column == "answers":
        return [{"prompt": f"Say {i}", "completion": str(i), "label": i % 2} for i in range(12)]
    if column == "steps":
        steps = ["one", "two"]
        return [{"prompt": f"Say {i}", "completions": steps, "labels": [True, i % 2 == 0]} for i in range(12)]
    pairs = [{"prompt": f"Say {i}", "chosen": f"{i} it is", "rejected": "no" * (i % 3 + 1)} for i in range(12)]
    if column == "judged":
        return [{**row, "annotator": "ab"[i % 2], "tie": float(i % 5 == 0)} for i, row in enumerate(pairs)]
    return pairs


@pytest.fixture
def command(model, write, tmp_path):
    """The words that start one of `RUNS` in a folder."""

    def command(name, folder):
        verb, config, column, flags, _ = RUNS[name]
        whose = "" if column is None else "model" if verb in ("reward", "prm", "yes", "steplabels") else "policy"
        given = [f"--{whose}.name", model] if whose else []
        given += ["--data.train", write("rows.jsonl", rows_of(column))] if column else []
        given += ["--output", str(tmp_path / folder), "--checkpoint_every", "1"]
        return [verb, str(CONFIGS / f"{config}.yaml"), *given, *flags]

    return command


@pytest.fixture
def breaking(monkeypatch):
    """Let a run break off right after so many lines of training were written, once."""

    def breaking(lines):
        log, seen = RunFolder.log, []

        def breaks(self, step, metrics, phase="train"):
            log(self, step, metrics, phase)
            seen.extend([step] if phase == "train" else [])
            if len(seen) == lines:
                monkeypatch.setattr(RunFolder, "log", log)
                raise KeyboardInterrupt

        monkeypatch.setattr(RunFolder, "log", breaks)

    return breaking


def figures(folder):
    return [{k: v for k, v in line.items() if k not in CLOCKS} for line in read(folder).metrics]


def files(folder):
    found = {p.relative_to(folder): p.read_bytes() for p in sorted((folder / "checkpoints").rglob("*")) if p.is_file()}
    return {name: content for name, content in found.items() if name.name != "training_args.json"}


@pytest.mark.filterwarnings("ignore:Fewer than 10%")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_breaks_off_ends_as_one_that_does_not(name, command, breaking, tmp_path, capsys):
    assert main(command(name, "whole")) == 0
    breaking(RUNS[name][-1])
    assert main(command(name, "parts")) != 0
    assert "--resume goes on" in capsys.readouterr().out
    assert len(figures(tmp_path / "parts")) < len(figures(tmp_path / "whole"))
    assert main([*command(name, "parts"), "--resume"]) == 0
    assert "on from step" in capsys.readouterr().out
    assert figures(tmp_path / "parts") == figures(tmp_path / "whole")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    whole, parts = (read(tmp_path / folder) for folder in ("whole", "parts"))
    assert parts.samples == whole.samples
    summaries = [
        {k: v for k, v in run.status["summary"].items() if not k.endswith("/seconds")} for run in (parts, whole)
    ]
    assert summaries[0] == summaries[1]
    assert (tmp_path / "parts" / "report.html").is_file()


def test_what_was_cloned_stays_cloned(command, breaking, tmp_path):
    assert main(command("control", "expert")) == 0
    cloning = ("--cloning.demonstrations", str(tmp_path / "expert" / "demonstrations.npz"))
    assert main([*command("control", "whole"), *cloning]) == 0
    breaking(3)
    assert main([*command("control", "parts"), *cloning]) != 0
    assert main([*command("control", "parts"), *cloning, "--resume"]) == 0
    assert figures(tmp_path / "parts") == figures(tmp_path / "whole")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    assert "cloned" in read(tmp_path / "parts").status["summary"]


@pytest.mark.slow
def test_a_killed_run_goes_on(command, tmp_path):
    flags = ("--steps", "8")
    assert main([*command("grpo", "whole"), *flags]) == 0
    run = subprocess.Popen([sys.executable, "-m", "prefrl", *command("grpo", "parts"), *flags])
    state = tmp_path / "parts" / "checkpoints" / "resume" / "state.json"
    while not state.exists():
        assert run.poll() is None
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert main([*command("grpo", "parts"), *flags, "--resume"]) == 0
    assert figures(tmp_path / "parts") == figures(tmp_path / "whole")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_a_run_goes_further_than_it_was_asked_to(command, tmp_path, capsys):
    assert main([*command("grpo", "whole"), "--steps", "5"]) == 0
    assert main([*command("grpo", "parts"), "--steps", "3"]) == 0
    assert main([*command("grpo", "parts"), "--steps", "3", "--resume"]) == 2
    assert "Raise --steps" in capsys.readouterr().err
    assert main([*command("grpo", "parts"), "--steps", "5", "--resume"]) == 0
    kept = {line["step"] for line in figures(tmp_path / "whole") if line["phase"] == "eval"}
    mine = [line for line in figures(tmp_path / "parts") if line["phase"] == "train" or line["step"] in kept]
    assert mine == figures(tmp_path / "whole")  # but for the evaluation at what was the end
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--policy.lr", "1e-2"), "policy"),
        (("--seed", "1"), "seed is 1, but the run was started with 0"),
        (("--overwrite",), "resume and overwrite are both set"),
    ],
)
def test_a_run_goes_on_with_its_own_settings(flags, said, command, tmp_path, capsys):
    assert main(command("grpo", "run")) == 0
    before = files(tmp_path / "run"), figures(tmp_path / "run")
    assert main([*command("grpo", "run"), "--resume", "--steps", "9", *flags]) == 2
    assert said in capsys.readouterr().err
    assert (files(tmp_path / "run"), figures(tmp_path / "run")) == before


def test_without_being_asked_a_state_is_kept_every_ten_minutes_until_the_end(command, tmp_path, monkeypatch, capsys):
    saved = []
    monkeypatch.setattr(
        resuming, "save_state", lambda folder, state: saved.append(state["step"]) or save_state(folder, state)
    )
    unasked = [*command("grpo", "quick"), "--checkpoint_every", "0"]
    assert main(unasked) == 0
    assert saved == []  # over in seconds
    assert main([*unasked, "--resume", "--steps", "9"]) == 2
    assert "finished, and kept no state" in capsys.readouterr().err
    monkeypatch.setattr(resuming, "SECONDS", 0.0)
    assert main([*command("grpo", "slow"), "--checkpoint_every", "0"]) == 0
    assert saved == [1, 2, 3]
    assert not (tmp_path / "slow" / "checkpoints" / "resume").exists()


def test_a_run_that_broke_off_after_its_last_step_is_brought_to_its_end(command, tmp_path, monkeypatch):
    assert main(command("grpo", "whole")) == 0

    def breaks(engine, folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("prefrl.model.engine.Engine.save", breaks)
        assert main(command("grpo", "parts")) != 0
    assert read(tmp_path / "parts").state == "failed"
    assert main([*command("grpo", "parts"), "--resume"]) == 0
    assert figures(tmp_path / "parts") == figures(tmp_path / "whole")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_a_run_that_is_at_work_is_left_alone(command, tmp_path, capsys):
    assert main(command("grpo", "run")) == 0
    with alone(tmp_path / "run"):
        for flag in ("--resume", "--overwrite"):
            assert main([*command("grpo", "run"), flag, "--steps", "9"]) == 2
            assert "Another process is at work" in capsys.readouterr().err
    assert read(tmp_path / "run").state == "finished"


def test_nothing_to_go_on_from(command, tmp_path, capsys):
    assert main([*command("grpo", "none"), "--resume"]) == 2
    assert "There is no run in" in capsys.readouterr().err
    assert main(command("grpo", "run")) == 0
    assert main(command("grpo", "run")) == 2
    assert "To go on with it: --resume" in capsys.readouterr().err
    (tmp_path / "run" / "checkpoints" / "resume" / "state.safetensors").write_bytes(b"damaged")
    assert main([*command("grpo", "run"), "--resume", "--steps", "9"]) == 2
    assert "No state to go on from can be read" in capsys.readouterr().err
    assert main([*command("dpo", "run"), "--resume"]) == 2
    assert "holds a run of kind 'rl', not 'dpo'" in capsys.readouterr().err


def test_a_state_that_does_not_fit_forgets_nothing(command, tmp_path, capsys):
    assert main(command("grpo", "run")) == 0
    resume = tmp_path / "run" / "checkpoints" / "resume"
    state = load_state(resume)
    save_state(resume, {**state, "step": 1, "parts": {**state["parts"], "feed": {}}})
    before = figures(tmp_path / "run")
    assert main([*command("grpo", "run"), "--resume"]) == 2
    assert "does not fit the run" in capsys.readouterr().err
    assert figures(tmp_path / "run") == before


def test_a_state_survives_a_kill_while_it_is_replaced(tmp_path, monkeypatch):
    save_state(tmp_path / "resume", {"step": 1})
    rename = Path.rename

    def killed(self, target):
        if not self.name.endswith("resume"):  # the new one is about to take the place of the old one
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        save_state(tmp_path / "resume", {"step": 2})
    monkeypatch.undo()
    assert load_state(tmp_path / "resume") == {"step": 1}
    with pytest.raises(RunError, match="No state"):
        load_state(tmp_path / "other")
    assert json.loads((tmp_path / "resume" / "state.json").read_text())
