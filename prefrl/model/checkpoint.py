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
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
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


def _is_disk_error(error: Exception) -> bool:
    # safetensors reports a full disk as its own SafetensorError holding the operating system's words.
    return isinstance(error, OSError) or "os error" in str(error).lower() or "no space left" in str(error).lower()


def _free(path: Path) -> str:
    place = next((p for p in path.parents if p.exists()), Path("."))
    return f"{shutil.disk_usage(place).free / 2**20:,.0f} MiB"
