"""Processes of the machine: started apart from the server, known again after it was restarted, and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

NICE = 10  # of 19: whatever people wait for in the browser goes first


def spawn(command: Sequence[str], log: Path, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, at low priority and with more environment variables than the server has.

    What it prints is appended to `log`.

    A signal to the server does not reach it, and it goes on when the server ends.
    """
    nice = shutil.which("nice")
    first = [nice, "-n", str(NICE)] if nice else []
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"} | dict(more)
    with log.open("ab") as out:
        return subprocess.Popen(
            [*first, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def birth(pid: int) -> str:
    """When a process began, in words that no other process of that number has; empty where it runs no more."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *rest = text.rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return "" if state in "ZX" else f"{boot}:{rest[18]}"  # the 22nd field; a zombie is one that has ended
    if Path("/proc/self/stat").exists():
        return ""
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def end(pid: int, born: str, grace: float) -> None:
    """End a process with all it started: asked to first; what is left of them once it ends, or in time, is killed."""
    if birth(pid) != born:
        return
    until = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
        while birth(pid) == born and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(pid, signal.SIGKILL)
