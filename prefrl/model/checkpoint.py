"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from prefrl.errors import RunError


@contextlib.contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """Yield a scratch folder that takes the place of `folder` when the block ends without an error.

    Raises:
        RunError: the disk is full or not writable; what stood in `folder` before is untouched.
    """
    target = Path(folder)
    scratch: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        scratch.chmod(0o755)
        yield scratch
        before = _before(target)
        shutil.rmtree(before, ignore_errors=True)
        if target.exists():
            target.rename(before)
        scratch.rename(target)
        shutil.rmtree(before, ignore_errors=True)
    except Exception as error:
        if not _is_disk_error(error):
            raise
        raise RunError(
            f"Could not write {target}: {error}. {_free(target)} free; make room or choose another folder. "
            "What was written before is untouched."
        ) from error
    finally:
        if scratch is not None and scratch.exists():
            shutil.rmtree(scratch, ignore_errors=True)


def recover(folder: str | Path) -> None:
    """Put back what stood in a folder before, where a kill came just as it was to be replaced."""
    target = Path(folder)
    if not target.exists() and _before(target).is_dir():
        _before(target).rename(target)


def _before(target: Path) -> Path:
    """Where a folder stands aside while another takes its place."""
    return target.with_name(f".{target.name}.before")


def _is_disk_error(error: Exception) -> bool:
    # safetensors reports a full disk as its own SafetensorError holding the operating system's words.
    return isinstance(error, OSError) or "os error" in str(error).lower() or "no space left" in str(error).lower()


def _free(path: Path) -> str:
    place = next((p for p in path.parents if p.exists()), Path("."))
    return f"{shutil.disk_usage(place).free / 2**20:,.0f} MiB"
