"""Run folders: what is refused, what is written, and what survives a full disk or a kill."""

from __future__ import annotations

import json
import math
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from prefrl.errors import ConfigError, DataError, ModelError, RunError
from prefrl.evaluate.files import append_lines, to_plain, write_atomic, writing
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.types import StopReason


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "a", "rl", {"seed": 3, "threads": 2})


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A disk that is full once a file has so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_new_folder_holds_everything_a_run_needs(run: RunFolder) -> None:
    assert sorted(entry.name for entry in run.path.iterdir()) == [
        "checkpoints", "config.yaml", "environment.json", "figures", "metrics.jsonl", "samples.jsonl",
        "status.json",
    ]  # fmt: skip
    assert yaml.safe_load((run.path / "config.yaml").read_text()) == {"seed": 3, "threads": 2}
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["seed"] == 3 and environment["threads"] == 2
    assert environment["cpu_count"] == os.cpu_count()
    assert set(environment["packages"]) >= {"torch", "transformers", "peft", "trl", "prefrl"}
    assert read(run.path).state == "running"


def test_a_folder_with_a_run_is_refused_by_kind_and_start(run: RunFolder) -> None:
    started = read(run.path).status["started"]
    with pytest.raises(RunError) as caught:
        RunFolder.create(run.path, "dpo", {})
    assert f"a run of kind 'rl' started {started} (running)" in str(caught.value)
    assert "choose another --output, or add --overwrite" in str(caught.value)
    assert read(run.path).kind == "rl"


def test_overwrite_deletes_the_old_run_and_nothing_but_runs(run: RunFolder, tmp_path: Path) -> None:
    run.log(0, {"loss": 1.0})
    (run.checkpoints / "step-1").mkdir()
    (run.checkpoints / "step-1" / "weights").write_text("w")
    fresh = RunFolder.create(run.path, "dpo", {}, overwrite=True)
    assert read(fresh.path).metrics == [] and list(fresh.checkpoints.iterdir()) == []
    fresh.log(0, {"loss": 2.0})
    assert not [path for path in fresh.path.rglob("*") if path.name == "weights"]

    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("words")
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"no run but other files \(chapter.tex\).*left alone"):
            RunFolder.create(tmp_path / "thesis", "rl", {}, overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "words"


@pytest.mark.parametrize("error", [ConfigError("no data"), KeyboardInterrupt()])
def test_a_run_is_not_overwritten_by_one_that_comes_to_nothing(error, run: RunFolder) -> None:
    run.log(0, {"loss": 1.0})
    (run.checkpoints / "weights").write_text("w")
    run.finish({"loss": 1.0})
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(type(error)), RunFolder.create(run.path, "dpo", {}, overwrite=True):
        raise error
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    RunFolder.create(run.path, "dpo", {}, overwrite=True)  # killed: it never closes
    with pytest.raises(type(error)), RunFolder.create(run.path, "sft", {}, overwrite=True):
        raise error
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_overwrite_leaves_what_a_link_points_to(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (run.path / "link").symlink_to(tmp_path / "precious")
    RunFolder.create(run.path, "rl", {}, overwrite=True)
    assert (tmp_path / "precious" / "file").read_text() == "kept"


def test_files_and_empty_names_are_refused_and_empty_folders_are_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="is a file; expected a folder"):
        RunFolder.create(tmp_path / "file", "rl", {})
    with pytest.raises(RunError, match="--output runs/rl"):
        RunFolder.create("", "rl", {})
    (tmp_path / "empty").mkdir()
    assert RunFolder.create(tmp_path / "empty", "rl", {}).path == tmp_path / "empty"


def test_metrics_are_read_back_and_nan_is_null_by_name(run: RunFolder) -> None:
    run.log(0, {"loss": 2.0, "kl/ref": 0.5})
    run.log(1, {"loss": math.nan, "kl/ref": math.inf})
    run.log(1, {"accuracy": 0.75}, phase="eval")
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert lines[1]["loss"] is None and lines[1]["nonfinite"] == ["loss", "kl/ref"]
    data = read(run.path)
    assert data.names() == ["loss", "kl/ref"] and data.names("eval") == ["accuracy"]
    steps, values = data.series("loss")
    assert steps == [0, 1] and values[0] == 2.0 and math.isnan(values[1])
    assert data.series("accuracy", "eval") == ([1], [0.75])
    assert data.nonfinite() == {"loss": 1, "kl/ref": 1}


@pytest.mark.parametrize(
    ("metrics", "words"), [({"step": 1.0}, "cannot be called"), ({"loss": "low"}, "expected a number")]
)
def test_what_is_no_metric_is_refused(run: RunFolder, metrics: dict[str, float], words: str) -> None:
    with pytest.raises(RunError, match=words):
        run.log(0, metrics)
    assert (run.path / "metrics.jsonl").read_bytes() == b""


def test_a_line_that_does_not_fit_the_disk_leaves_the_ones_before(run: RunFolder) -> None:
    run.log(0, {"loss": 1.0})
    before = (run.path / "metrics.jsonl").read_bytes()
    with largest_file(len(before) + 20), pytest.raises(RunError) as caught:
        run.log(1, {"loss": 0.5, "reward/mean": 0.25})
    assert (run.path / "metrics.jsonl").read_bytes() == before
    assert "metrics.jsonl" in str(caught.value) and "bytes free" in str(caught.value)
    assert "Everything written so far is kept; free some space" in str(caught.value)
    run.log(1, {"loss": 0.5})
    assert read(run.path).series("loss") == ([0, 1], [1.0, 0.5])


def test_a_full_disk_keeps_the_old_file_and_leaves_no_scrap(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_atomic(target, "old")
    with largest_file(10), pytest.raises(RunError, match="Cannot write"):
        write_atomic(target, "new" * 100)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_other_os_errors_ask_for_a_writable_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="make the folder writable"), writing(tmp_path / "x"):
        raise PermissionError(13, "Permission denied")


def test_a_killed_run_is_read_up_to_its_last_full_line(run: RunFolder) -> None:
    run.log(0, {"loss": 1.0})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 1, "phase": "train", "lo')
    data = read(run.path)
    assert data.series("loss") == ([0], [1.0]) and data.skipped_metrics == 1
    assert data.state == "running"


def test_samples_keep_every_key_and_any_text(run: RunFolder) -> None:
    run.samples(4, [{"prompt": "p", "text": "a\nb\u2028\ud800", "stop": StopReason.EOS, "reward": math.nan}])
    data = read(run.path)
    assert data.samples == [{"step": 4, "prompt": "p", "text": "a\nb\u2028\ud800", "stop": "eos", "reward": None}]
    assert data.skipped_samples == 0


def test_leaving_the_block_marks_the_end(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "good", "rl", {}):
        pass
    with RunFolder.create(tmp_path / "told", "rl", {}) as run:
        run.finish({"accuracy": 0.5})
    with pytest.raises(ValueError, match="boom"), RunFolder.create(tmp_path / "bad", "rl", {}):
        raise ValueError("boom")
    with pytest.raises(KeyboardInterrupt), RunFolder.create(tmp_path / "stopped", "rl", {}):
        raise KeyboardInterrupt
    assert read(tmp_path / "good").state == "finished"
    assert read(tmp_path / "told").status["summary"] == {"accuracy": 0.5}
    assert read(tmp_path / "bad").status["error"] == "ValueError: boom"
    assert read(tmp_path / "stopped").status["error"] == "interrupted"
    assert read(tmp_path / "bad").status["seconds"] >= 0


@pytest.mark.parametrize("error", [ConfigError, DataError, ModelError])
def test_a_run_that_is_refused_leaves_nothing(error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    for name in ("new", "given"):
        with pytest.raises(error, match="no"), RunFolder.create(tmp_path / name, "rl", {}) as run:
            (run.path / "reward.json").write_text("{}")
            raise error("no")
    assert list(tmp_path.rglob("*")) == [tmp_path / "given"]


def test_a_refusal_takes_no_work_and_no_other_run_with_it(tmp_path: Path) -> None:
    def measured(run: RunFolder) -> None:
        run.log(1, {"loss": 1.0})

    def sampled(run: RunFolder) -> None:
        run.samples(1, [{"prompt": "p"}])

    def saved(run: RunFolder) -> None:
        (run.checkpoints / "final").mkdir()
        (run.checkpoints / "final" / "config.json").touch()

    for work in (measured, sampled, saved):
        with pytest.raises(ModelError), RunFolder.create(tmp_path / work.__name__, "rl", {}) as run:
            work(run)
            raise ModelError("late")
        assert read(run.path).status["error"] == "ModelError: late"
    with RunFolder.create(tmp_path / "again", "rl", {}):
        pass
    with pytest.raises(ModelError), RunFolder.reopen(tmp_path / "again"):
        raise ModelError("not yet")
    assert read(tmp_path / "again").state == "failed"


def test_the_first_error_survives_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"), RunFolder.create(tmp_path / "a", "rl", {}) as run:
        run.path.rename(tmp_path / "elsewhere")
        raise ValueError("boom")


def test_a_missing_run_names_its_neighbour(run: RunFolder) -> None:
    run.path.rename(run.path.parent / "grpo-first")
    with pytest.raises(RunError, match=r"There is no run in .*grpo-frist.* Did you mean 'grpo-first'\?"):
        read(run.path.parent / "grpo-frist")


def test_configurations_keep_infinity_and_become_plain(tmp_path: Path) -> None:
    config = {
        "cap": math.inf,
        "stop": ("a", "b"),
        "path": Path("x/y"),
        "reason": StopReason.STOP,
        "none": None,
    }
    run = RunFolder.create(tmp_path / "a", "rl", config)
    assert read(run.path).config == {
        "cap": math.inf, "stop": ["a", "b"], "path": "x/y", "reason": "stop", "none": None,
    }  # fmt: skip
    assert to_plain({1: math.nan}) == {"1": None}


def test_nothing_is_appended_when_one_of_the_lines_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        append_lines(tmp_path / "x.jsonl", [{"a": 1}, {"a": math.nan}])
    assert not (tmp_path / "x.jsonl").exists()
