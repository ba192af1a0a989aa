"""The folder of a run of inverse RL, and how a run goes on in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from prefrl.config import IRLConfig
from prefrl.errors import ConfigError, RunError
from prefrl.evaluate.files import write_atomic
from prefrl.evaluate.run_folder import METRICS, RunFolder, read
from prefrl.model.state import load_state
from prefrl.parsing import to_dict
from prefrl.recipes.common import start

RESUME = "resume"
FREE = ("steps", "resume", "output", "overwrite", "threads", "eval_every", "checkpoint_every")  # may change at a resume
WARM_START, SFT, ROUND = "warm_start", "sft", "round_"  # phases that count steps of their own


class Stateful(Protocol):
    """What learns in a run, and can be put back."""

    def load_state_dict(self, state: Mapping[str, Any]) -> int:
        """Restore a saved state; the step it was taken after."""
        ...


@contextmanager
def opened(config: IRLConfig) -> Iterator[tuple[RunFolder, dict[str, Any] | None]]:
    """The run folder and, of a run that goes on, the state it left.

    Raises:
        RunError: there is nothing to go on with, or nothing left to do.
        ConfigError: the run was started with other settings.
    """
    if not config.resume:
        with start(config, "irl") as folder:
            yield folder, None
        return
    where = Path(config.output or "runs/irl").expanduser()
    _refuse_changes(to_dict(config), read(where).config)
    state = load_state(where / "checkpoints" / RESUME)
    if not isinstance(state.get("step"), int):
        raise RunError(f"The state to go on from in {where} names no step. Start the run anew, with --overwrite.")
    if state["step"] >= config.steps:
        raise RunError(f"The run in {where} has done its {state['step']} steps. Raise --steps to go on with it.")
    if config.threads:
        torch.set_num_threads(config.threads)
    with RunFolder.reopen(where) as folder:
        print(f"Run folder: {folder.path}, on from step {state['step']}", flush=True)
        yield folder, state


def taken_over(folder: RunFolder, study: Stateful, state: Mapping[str, Any] | None) -> int:
    """The step that a run goes on after, 0 without a state. What was measured later is forgotten.

    Raises:
        RunError: the state does not fit; nothing is forgotten then.
    """
    if state is None:
        return 0
    try:
        step = study.load_state_dict(state)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise RunError(
            f"The state to go on from in {folder.checkpoints / RESUME} does not fit the run: {type(error).__name__}: "
            f"{error}. Start the run anew, with --overwrite."
        ) from error
    _rewind(folder, step)
    return step


def _refuse_changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    changed = [name for name, value in now.items() if name not in FREE and before.get(name) != value]
    if changed:
        name = changed[0]
        raise ConfigError(
            f"{name} is {now[name]!r}, but the run was started with {before.get(name)!r}; a run goes on with the "
            f"settings it has. Only {', '.join(FREE)} may change."
        )


def _rewind(folder: RunFolder, step: int) -> None:
    """Forget the metrics after a step: the run does those steps again."""
    lines = [line for line in read(folder.path).metrics if _stands(line, step)]
    write_atomic(folder.path / METRICS, "".join(json.dumps(line) + "\n" for line in lines))


def _stands(line: Mapping[str, Any], step: int) -> bool:
    phase = str(line["phase"])
    if phase.startswith(ROUND):
        return int(phase.removeprefix(ROUND)) <= step
    if phase.startswith(SFT):  # it comes after the last step
        return False
    return phase == WARM_START or bool(line["step"] <= step)
