"""Processes as the trusted side sees them: who descends from whom, how much they hold, how long they waited."""

from __future__ import annotations

import os
import pwd
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress

USERS = range(55_000, 56_000)  # of which each slot takes one for itself when prefrl runs as root
ROUNDS = 100


def reserve_user() -> tuple[int, socket.socket]:
    """A user id that no account and no process has, and the lock that holds it until it is closed.

    The lock is a name in the abstract space of Unix sockets: it leaves no file and ends with its process.

    Raises:
        OSError: all of them are taken.
    """
    taken = set(_users().values())
    for uid in USERS:
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0prefrl-sandbox-{uid}")
        except OSError:
            lock.close()
            continue
        if uid not in taken and not _has_account(uid):
            return uid, lock
        lock.close()
    raise OSError(f"no free user id in {USERS.start}..{USERS.stop - 1}")


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def descendants(root: int) -> list[int]:
    """Process ids beneath `root`, itself not among them; empty where there is no /proc."""
    parents = {pid: _parent(pid) for pid in _pids()}
    found: list[int] = []
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found


def of_user(uid: int) -> list[int]:
    """Process ids of a user."""
    return [pid for pid, owner in _users().items() if owner == uid]


def end(root: int, uid: int | None) -> None:
    """Kill everything beneath `root`, and everything of the user, until nothing is left. `root` itself stays."""
    for _ in range(ROUNDS):
        alive = {*descendants(root), *(of_user(uid) if uid else [])} - {root, os.getpid()}
        alive = {pid for pid in alive if _state(pid) not in ("Z", "")}
        if not alive:
            return
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def memory(pids: list[int]) -> int:
    """Bytes that the processes hold for themselves or in shared memory, added up."""
    return sum(_field(pid, "RssAnon") + _field(pid, "RssShmem") for pid in pids) * 1024


def waited(pids: Iterable[int]) -> float:
    """Seconds that the unluckiest of the processes was ready to run and had no processor."""
    longest = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/schedstat") as file:
            longest = max(longest, int(file.read().split()[1]))
    return longest / 1e9


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _users() -> dict[int, int]:
    # From the status: the folder itself belongs to root where a process may not be dumped.
    return {pid: _field(pid, "Uid") for pid in _pids()}


def _parent(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return 0


def _state(pid: int) -> str:
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
    return ""


def _field(pid: int, name: str) -> int:
    """The first number of a line of /proc/PID/status; 0 where it is not there."""
    with suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    return 0
