"""Each attack is stopped at the levels that promise to stop it, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks import ATTACKS, BECOME_ROOT, Attack

from prefrl.sandbox import Limits, Sandbox


@pytest.fixture(scope="module")
def world() -> Iterator[dict[str, Any]]:
    """What the attacks aim at: a folder open to all, two sockets, this process, a name in shared memory."""
    folder = Path(tempfile.mkdtemp(prefix="prefrl-world-"))
    folder.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "unix"))
        unix.listen()
        (folder / "unix").chmod(0o777)
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind(f"\0prefrl-world-{os.getpid()}")
            abstract.listen()
            yield {
                "folder": str(folder),
                "port": tcp.getsockname()[1],
                "abstract": f"prefrl-world-{os.getpid()}",
                "pid": os.getpid(),
                "repository": str(Path(__file__).parents[3]),
                "shm": f"/dev/shm/prefrl-world-{os.getpid()}",
            }
    Path(f"/dev/shm/prefrl-world-{os.getpid()}").unlink(missing_ok=True)
    shutil.rmtree(folder)


@pytest.fixture
def fresh(world: dict[str, Any]) -> dict[str, Any]:
    """The world as it was at first."""
    folder = Path(world["folder"])
    for path in folder.iterdir():
        if path.name != "unix":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in ("secret.txt", "open.txt", "victim.txt", "moved"):
        (folder / name).write_text("EXPECTED_4711")
        (folder / name).chmod(0o666)
    return world


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_is_stopped(attack: Attack, box: Sandbox, fresh: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "SECRET")
    before = _listing(fresh)
    with box.session(Limits(seconds=20.0)) as session:
        submission = session.submission(attack.source)
        answer = submission.call("attack", [fresh])
    succeeded = answer.ok and bool(answer.value)
    if box.level in attack.stopped_by:
        assert not succeeded, f"{attack.name} got {answer.value!r}"
    elif attack.stopped_by == ("D",):
        assert succeeded  # or the attack would show nothing where it is stopped
    if box.level in "CD":
        assert _listing(fresh) == before


def test_nobody_becomes_root(box: Sandbox) -> None:
    with box.session() as session:
        answer = session.submission(BECOME_ROOT.source).call("attack", [{}])
    root_at_b = box.level == "B" and os.getuid() == 0
    assert answer.ok is root_at_b


def test_the_attacks_succeed_where_nothing_stops_them(fresh: dict[str, Any]) -> None:
    """At level B, which promises nothing of files: an attack that never works would prove nothing at C and D."""
    names = {
        "read_hidden_tests",
        "write_outside",
        "delete_outside",
        "chmod_outside",
        "symlink",
        "tcp",
        "abstract",
        "fork",
    }
    sandbox = Sandbox(floor="B", level="B", slots=1)
    for attack in (attack for attack in ATTACKS if attack.name in names):
        with sandbox.session() as session:
            answer = session.submission(attack.source).call("attack", [fresh])
        assert answer.ok and answer.value, f"{attack.name}: {answer.error}"
    sandbox.close()


def _listing(world: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    folder = Path(world["folder"])
    return {
        path.name: (path.lstat().st_size, path.lstat().st_mode, path.lstat().st_mtime_ns) for path in folder.iterdir()
    }
