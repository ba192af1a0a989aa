"""A folder appears whole or not at all."""

from __future__ import annotations

import errno
import shutil

import pytest

from prefrl.errors import RunError
from prefrl.model.checkpoint import atomic_folder

FULL = OSError(errno.ENOSPC, "No space left on device")


class SafetensorError(Exception):
    """What safetensors raises in place of an OSError."""


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_new_folder_with_its_parents(tmp_path):
    with atomic_folder(tmp_path / "runs" / "final") as scratch:
        (scratch / "weights").write_text("new")
        assert not (tmp_path / "runs" / "final").exists()
    assert (tmp_path / "runs" / "final" / "weights").read_text() == "new"
    assert names(tmp_path / "runs") == ["final"]


def test_an_old_folder_is_replaced_whole(tmp_path):
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "stale").write_text("old")
    with atomic_folder(str(tmp_path / "final")) as scratch:
        (scratch / "weights").write_text("new")
    assert names(tmp_path / "final") == ["weights"]
    assert names(tmp_path) == ["final"]


def test_others_may_read_it(tmp_path):
    with atomic_folder(tmp_path / "final"):
        pass
    assert (tmp_path / "final").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (FULL, RunError),
        (PermissionError(errno.EACCES, "Permission denied"), RunError),
        (SafetensorError("I/O error: No space left on device (os error 28)"), RunError),
        (ValueError("a bug"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_stood_there_before_survives(tmp_path, raised, wanted):
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "weights").write_text("old")
    with pytest.raises(wanted), atomic_folder(tmp_path / "final") as scratch:
        (scratch / "weights").write_text("half")
        raise raised
    assert (tmp_path / "final" / "weights").read_text() == "old"
    assert names(tmp_path) == ["final"]


def test_the_message_names_folder_cause_and_room(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 3 * 2**20))
    said = r"final: .*No space left on device.* 3 MiB free"
    with pytest.raises(RunError, match=said) as caught, atomic_folder(tmp_path / "final"):
        raise FULL
    assert caught.value.__cause__ is FULL


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match="Could not write"), atomic_folder(tmp_path / "runs" / "final"):
        pytest.fail("there is nowhere to write")


def test_a_disk_that_fills_up_while_the_policy_is_saved(tmp_path, monkeypatch):
    from tiny import language_model

    policy = language_model()
    policy.save(tmp_path / "final")
    before = {p.name: p.read_bytes() for p in (tmp_path / "final").iterdir()}

    def full(*_, **__):
        raise FULL

    monkeypatch.setattr(policy.tokenizer, "save_pretrained", full)
    with pytest.raises(RunError, match="No space left"):
        policy.save(tmp_path / "final")
    assert {p.name: p.read_bytes() for p in (tmp_path / "final").iterdir()} == before
    assert names(tmp_path) == ["final"]
