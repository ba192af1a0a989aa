"""Who a run folder belongs to: what stands in it, what is refused, and what comes back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from prefrl.errors import RunError
from prefrl.evaluate.files import writing

CONFIG, ENVIRONMENT, METRICS = "config.yaml", "environment.json", "metrics.jsonl"
SAMPLES, STATUS, REPORT = "samples.jsonl", "status.json", "report.html"
RESUME = "resume"  # the checkpoint that a run goes on from
ASIDE = ".overwritten"  # where a run that is overwritten waits until the new one can no longer be refused

_ASKED = (CONFIG, ENVIRONMENT, STATUS, "reward.json", "loop.json")  # what a run leaves that has done nothing yet


def claim(folder: Path, overwrite: bool) -> None:
    """Make the folder, or refuse it."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; expected a folder. Choose another --output.")
    with writing(folder):
        found = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    if STATUS in found:
        if not overwrite:
            more = " To go on with it: --resume." if (folder / "checkpoints" / RESUME).is_dir() else ""
            raise RunError(
                f"{folder} already holds {_describe(folder)}; choose another --output, or add --overwrite.{more}"
            )
        with writing(folder):
            _put_aside(folder)
    elif found:
        shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise RunError(
            f"{folder} holds no run but other files ({shown}), which are left alone; choose another --output."
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def is_idle(folder: Path) -> bool:
    """Whether a folder holds only what was asked: records of it, logs without a line, and folders without a file."""
    with suppress(OSError):
        found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
        files = [path for path in found if folder / ASIDE not in path.parents]
        asked, logs = ([folder / name for name in names] for names in (_ASKED, (METRICS, SAMPLES)))
        return all(path in asked or (path in logs and not path.stat().st_size) for path in files)
    return False


def _put_aside(folder: Path) -> None:
    """Move what is in the folder into one inside of it: the folder itself may be a mount or a link."""
    aside = folder / ASIDE
    if aside.exists():  # of a run that was killed before it had measured anything: the older one is worth more
        _empty(folder, but=ASIDE)
        return
    entries = list(folder.iterdir())
    aside.mkdir()
    for entry in entries:
        entry.rename(aside / entry.name)


def _empty(folder: Path, *, but: str) -> None:
    """Delete what is in the folder, but for one entry."""
    for entry in folder.iterdir():
        if entry.name == but:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def give_back(folder: Path, whole: bool) -> None:
    """Take what stands in the folder away and put back what was to be overwritten.

    Args:
        folder: of the run that comes to nothing.
        whole: whether it made the folder, which then goes too.
    """
    _empty(folder, but=ASIDE)
    aside = folder / ASIDE
    if aside.is_dir():
        for entry in aside.iterdir():
            entry.rename(folder / entry.name)
        aside.rmdir()
    elif whole:
        folder.rmdir()


def _describe(folder: Path) -> str:
    status = read_json(folder / STATUS) or {}
    kind, started, state = (status.get(key, "unknown") for key in ("kind", "started", "state"))
    return f"a run of kind {kind!r} started {started} ({state})"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder, made where there is none, against a second run; a process that dies lets go of it.

    Raises:
        RunError: another process has it, or it cannot be made.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    with ExitStack() as stack:
        stack.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"Another process is at work in {folder}; wait for it, or choose another --output."
            ) from None
        yield


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in a file; None where there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
