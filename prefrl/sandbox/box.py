"""The sandbox: a level, and warm slots that any thread may use."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefrl.errors import ConfigError, did_you_mean
from prefrl.sandbox.client import Session
from prefrl.sandbox.levels import LEVELS, NAMES, choose
from prefrl.sandbox.slot import Limits, Setup, Slot

SETTINGS = ("floor", "level", "slots", "packages", "preload", "disk", "python")


class Sandbox:
    """Runs untrusted Python at the strongest level that the machine offers.

    Args:
        floor: the weakest level that will do: B, C or D. Below it nothing runs.
        level: this level and no other.
        slots: submissions at the same time; as many as there are processors by default.
        packages: folders of modules that submissions may import, say the site-packages with numpy.
        preload: modules that every server imports once, so that submissions have them at no cost.
        disk: bytes that a submission may write to its working folder, emptied after each; needs level D. 0: no files.
        python: interpreter that runs the submissions; this one by default.

    Raises:
        ConfigError: an unknown level, a number of slots that is not positive, or a disk without level D.
        SandboxError: the machine offers less than the floor.
    """

    def __init__(
        self,
        *,
        floor: str = "C",
        level: str | None = None,
        slots: int | None = None,
        packages: tuple[str, ...] | list[str] = (),
        preload: tuple[str, ...] | list[str] = (),
        disk: int = 0,
        python: str | None = None,
    ) -> None:
        for name, value in (("floor", floor), ("level", level)):
            if value is not None and value not in LEVELS:
                raise ConfigError(f"sandbox: {name}={value!r}; expected one of {', '.join(LEVELS)}")
        if slots is not None and slots < 1:
            raise ConfigError(f"sandbox: slots={slots}; expected at least 1")
        if level is not None and LEVELS.index(level) < LEVELS.index(floor):
            raise ConfigError(f"sandbox: level={level!r} is below floor={floor!r}; give floor: {level} as well")
        floor = "D" if disk else floor  # elsewhere nothing bounds how many files there are
        setup = Setup(
            level="",
            python=python or sys.executable,
            packages=tuple(map(os.path.abspath, packages)),
            preload=tuple(preload),
            disk=disk,
        )
        self.setup = choose(setup, floor, level)
        self.level = self.setup.level
        self.slots = slots or os.cpu_count() or 1
        self._reset()
        _announce(self.level)
        _ALL.add(self)

    def _reset(self) -> None:
        self._idle: list[Slot] = []
        self._lock, self._free = threading.Lock(), threading.Semaphore(self.slots)

    @contextmanager
    def session(self, limits: Limits | None = None) -> Iterator[Session]:
        """A slot for one submission; waits for a free one, which counts against no limit of time.

        Raises:
            SandboxError: the slot's own processes failed; the next session gets a new slot.
        """
        with self._free:
            with self._lock:
                slot = self._idle.pop() if self._idle else None
            session = Session(slot or Slot(self.setup), limits or Limits())
            try:
                with session:
                    yield session
            finally:
                self._return(session)

    def _return(self, session: Session) -> None:
        if not session.sound:
            session.slot.end()
            return
        with self._lock:
            self._idle.append(session.slot)

    def close(self) -> None:
        """End the idle servers; a later session starts new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for slot in idle:
            slot.end()

    def forget(self) -> None:
        """In a forked process: let go of the servers, which belong to the process it was forked from."""
        for slot in self._idle:
            slot.forget()
        self._reset()

    def __repr__(self) -> str:
        return f"<Sandbox level {self.level}, {self.slots} slots>"


_ALL: weakref.WeakSet[Sandbox] = weakref.WeakSet()
_SHARED: dict[tuple[Any, ...], Sandbox] = {}
_SAID: set[str] = set()
_LOCK = threading.Lock()


def shared(settings: Mapping[str, Any] | None = None) -> Sandbox:
    """The one sandbox of this process with these settings (those of `Sandbox`), made when first asked for.

    Raises:
        ConfigError: an unknown setting.
        SandboxError: the machine offers less than the floor.
    """
    given = dict(settings or {})
    for name in given:
        if name not in SETTINGS:
            raise ConfigError(
                f"sandbox has no setting {name!r}; its settings: {', '.join(SETTINGS)}.{did_you_mean(name, SETTINGS)}"
            )
    key = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(given.items()))
    with _LOCK:
        if key not in _SHARED:
            _SHARED[key] = Sandbox(**given)
        return _SHARED[key]


def _announce(level: str) -> None:
    if level not in _SAID:
        _SAID.add(level)
        print(f"sandbox: level {level} ({NAMES[level]})", file=sys.stderr, flush=True)


@atexit.register
def _close_all() -> None:
    for sandbox in list(_ALL):
        sandbox.close()


def _after_fork() -> None:
    global _LOCK
    _LOCK = threading.Lock()
    for sandbox in list(_ALL):
        sandbox.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
