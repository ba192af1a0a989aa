"""How a run goes on in its folder: all that learns is written every so often, and read back bit for bit."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from prefrl.config import Resumable, RunConfig
from prefrl.errors import ConfigError, RunError
from prefrl.evaluate.files import write_atomic
from prefrl.evaluate.run_claim import alone
from prefrl.evaluate.run_folder import METRICS, RESUME, SAMPLES, RunData, RunFolder, read
from prefrl.model.state import load_state, save_state
from prefrl.parsing import to_dict
from prefrl.recipes.common import quiet, start

# What may change when a run goes on: how far, how often it is looked at, and where.
FREE = (
    *("steps", "epochs", "rounds", "eval_every", "checkpoint_every"),
    *("resume", "output", "overwrite", "threads"),
)
SECONDS = 600.0  # between two checkpoints where the configuration names no steps

B = TypeVar("B")
Line = Mapping[str, Any]
Stands = Callable[[Line, int], bool]


class Stateful(Protocol):
    """What learns in a run, and can be put back."""

    def state_dict(self) -> Mapping[str, Any]:
        """All that an exact continuation needs of it."""
        ...

    def load_state_dict(self, state: Any, /) -> Any:
        """Restore what `state_dict` returned for one made alike."""
        ...


def up_to(line: Line, step: int) -> bool:
    """Whether a line of metrics or samples was written by the end of a step."""
    return bool(line["step"] <= step)


class Checkpoints:
    """The states of one run. Without a folder nothing is written: the run is a part of another.

    Call `restore` once, with everything that learns, and `after` at the end of every step.

    Args:
        folder: of the run.
        every: steps between checkpoints; 0 makes one every ten minutes.
        state: what the run left, where it goes on.
    """

    def __init__(self, folder: RunFolder | None = None, every: int = 0, state: Mapping[str, Any] | None = None) -> None:
        self.folder, self.every, self.state = folder, every, state
        self._parts: dict[str, Stateful] = {}
        self._last = time.monotonic()

    def part(self, name: str) -> Mapping[str, Any]:
        """What a part had left, before anything is put back; empty of a new run."""
        found: Mapping[str, Any] = self.state["parts"].get(name, {}) if self.state else {}
        return found

    def restore(self, *, stands: Stands = up_to, **parts: Stateful | None) -> int:
        """Put everything back where the run left it; what was measured later is forgotten, as it is done again.

        Args:
            stands: whether a line of metrics or samples was written by the end of a step.
            parts: what learns, by name; those that are None do not.

        Returns:
            The steps done, 0 of a new run, of which nothing is changed.

        Raises:
            RunError: the state does not fit; nothing is forgotten then.
        """
        self._parts = {name: part for name, part in parts.items() if part is not None}
        if self.state is None or self.folder is None:
            return 0
        try:
            for name, part in self._parts.items():
                part.load_state_dict(self.state["parts"][name])
            _set_random_state(self.state["random"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise RunError(
                f"The state to go on from in {self.folder.checkpoints / RESUME} does not fit the run: "
                f"{type(error).__name__}: {error}. Start the run anew, with --overwrite."
            ) from error
        step = int(self.state["step"])
        self.state = None  # once: parts that come later in the run start anew
        _rewind(self.folder, step, stands)
        return step

    def after(self, step: int, *, last: bool = False) -> None:
        """Write the state after a step, if one is due.

        Raises:
            RunError: it cannot be written; the one before it still can be read.
        """
        if self.folder is None:
            return
        due = (last or step % self.every == 0) if self.every else self._is_time() and not last
        if due:
            parts = {name: part.state_dict() for name, part in self._parts.items()}
            save_state(self.folder.checkpoints / RESUME, {"step": step, "parts": parts, "random": _random_state()})
            self._last = time.monotonic()

    def _is_time(self) -> bool:
        return time.monotonic() - self._last >= SECONDS


def numbered(passes: Sequence[Sequence[B]], done: int = 0) -> Iterator[tuple[int, B, bool]]:
    """The batches of all passes that follow the first `done`, with their numbers and whether they end a pass."""
    ends = set(accumulate(len(batches) for batches in passes))
    for step, batch in enumerate((batch for batches in passes for batch in batches), start=1):
        if step > done:
            yield step, batch, step in ends


@contextmanager
def opened(config: RunConfig, kind: str) -> Iterator[tuple[RunFolder, Checkpoints]]:
    """The run folder, new or of the run that goes on, and its checkpoints.

    A state that nobody asked for by `checkpoint_every` is deleted once the run is done.

    Raises:
        RunError: there is nothing to go on with, or nothing left to do.
        ConfigError: the run was started with other settings.
    """
    assert isinstance(config, Resumable)
    where = Path(config.output or f"runs/{kind}").expanduser()
    with (_reopened if config.resume else _begun)(config, kind, where) as (folder, checkpoints):
        try:
            yield folder, checkpoints
        except BaseException:
            if checkpoints.state is None and (folder.checkpoints / RESUME).is_dir():
                print(f"The run has left its state in {folder.checkpoints}: the same command with --resume goes on.")
            raise
    if not config.checkpoint_every:
        shutil.rmtree(folder.checkpoints / RESUME, ignore_errors=True)


@contextmanager
def _begun(config: RunConfig, kind: str, where: Path) -> Iterator[tuple[RunFolder, Checkpoints]]:
    """The folder of a new run."""
    assert isinstance(config, Resumable)
    if config.overwrite and where.is_dir():
        with alone(where):  # a run that is at work there is not overwritten
            pass
    with start(config, kind) as folder, alone(folder.path):
        yield folder, Checkpoints(folder, config.checkpoint_every)


@contextmanager
def _reopened(config: RunConfig, kind: str, where: Path) -> Iterator[tuple[RunFolder, Checkpoints]]:
    """The folder of the run that goes on."""
    assert isinstance(config, Resumable)
    found = read(where)
    with alone(where):
        state = _left(config, kind, found)
        quiet()
        if config.threads:
            torch.set_num_threads(config.threads)
        with RunFolder.reopen(where) as folder:
            print(f"Run folder: {folder.path}, on from step {state['step']}", flush=True)
            yield folder, Checkpoints(folder, config.checkpoint_every, state)


def _left(config: RunConfig, kind: str, found: RunData) -> dict[str, Any]:
    """The last state of a run, if this configuration can go on with it."""
    where = found.path
    if found.kind != kind:
        raise RunError(f"{where} holds a run of kind {found.kind!r}, not {kind!r}. Name another --output.")
    refuse_changes(to_dict(config), found.config)
    if found.state == "finished" and not (where / "checkpoints" / RESUME).is_dir():
        raise RunError(
            f"The run in {where} is finished, and kept no state to go on from (checkpoint_every was 0). To train its "
            f"model further, start another run from {where / 'checkpoints' / 'final'}."
        )
    state = load_state(where / "checkpoints" / RESUME)
    if not isinstance(state.get("step"), int):
        raise RunError(f"The state to go on from in {where} names no step. Start the run anew, with --overwrite.")
    for name in ("steps", "rounds"):
        most = getattr(config, name, None)
        done = found.state == "finished" and state["step"] == most  # one that broke off after its last step is not
        if isinstance(most, int) and (done or state["step"] > most):
            raise RunError(f"The run in {where} has done its {state['step']} {name}. Raise --{name} to go on with it.")
    return state


def refuse_changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than the run was started with, but for those of `FREE`."""
    changed = [name for name, value in now.items() if name not in FREE and before.get(name) != value]
    if changed:
        name = changed[0]
        free = ", ".join(key for key in FREE if key in now)
        raise ConfigError(
            f"{name} is {now[name]!r}, but the run was started with {before.get(name)!r}; a run goes on with the "
            f"settings it has. Only {free} may change."
        )


def _rewind(folder: RunFolder, step: int, stands: Stands) -> None:
    """Forget the lines after a step: the run does those steps again."""
    data = read(folder.path)
    for name, lines in ((METRICS, data.metrics), (SAMPLES, data.samples)):
        kept = (json.dumps(line, ensure_ascii=False) + "\n" for line in lines if stands(line, step))
        write_atomic(folder.path / name, "".join(kept))


def _random_state() -> dict[str, Any]:
    """What draws without a generator of its own, as plug-in rewards may, draws the same after a resumption."""
    version, numbers, gauss = random.getstate()
    return {"python": [version, list(numbers), gauss], "torch": torch.get_rng_state()}


def _set_random_state(state: Mapping[str, Any]) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(state["torch"])
