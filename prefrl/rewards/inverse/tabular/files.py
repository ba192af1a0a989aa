"""Demonstrations and learnt rewards as files: JSONL, and safetensors with a JSON record beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefrl.errors import DataError, RewardError
from prefrl.rewards.inverse.tabular.mdp import MDP, Array, Trajectory

RECORD, TENSORS = "tabular_reward.json", "tabular_reward.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularReward:
    """A learnt reward as it is taken elsewhere.

    reward  (S,), (S, A) or (S, A, S)
    policy  ([H,] S, A), the soft-optimal one where it was learnt
    record  where and how it was learnt
    """

    reward: Array
    policy: Array
    record: Mapping[str, Any]

    def save(self, folder: str | Path) -> Path:
        """Write it into a folder, which is made."""
        from safetensors.numpy import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"reward": self.reward.copy(), "policy": self.policy.copy()}, folder / TENSORS)
        (folder / RECORD).write_text(json.dumps(dict(self.record), indent=2) + "\n", encoding="utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> TabularReward:
        """The reward that `save` wrote.

        Raises:
            RewardError: there is none.
        """
        from safetensors.numpy import load_file

        folder = Path(folder)
        if not (folder / TENSORS).is_file() or not (folder / RECORD).is_file():
            raise RewardError(f"{folder} holds no tabular reward; expected {TENSORS} and {RECORD} in it")
        tensors = load_file(folder / TENSORS)
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return cls(reward=tensors["reward"], policy=tensors["policy"], record=record)


def save_trajectories(path: str | Path, trajectories: Sequence[Trajectory]) -> None:
    """One JSON object a line: {"states": [0, 1, 5], "actions": [3, 1]}."""
    lines = [json.dumps({"states": one.states, "actions": one.actions}) for one in trajectories]
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def load_trajectories(path: str | Path, mdp: MDP) -> list[Trajectory]:
    """Demonstrations of a process from a file that `save_trajectories`, or anything else, wrote.

    Raises:
        DataError: the file cannot be read, or a line is no trajectory of the process.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.reason if isinstance(error, UnicodeDecodeError) else error.strerror
        raise DataError(f"{path} cannot be read ({why}); expected a file of trajectories") from None
    found = [_trajectory(line, f"{path}, line {number}", mdp) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DataError(
            f'{path} holds no trajectory; expected a line {{"states": [0, 1, 5], "actions": [3, 1]}} or more'
        )
    return found


def _trajectory(line: str, where: str, mdp: MDP) -> Trajectory:
    try:
        read = json.loads(line)
        found = Trajectory(tuple(map(int, read["states"])), tuple(map(int, read["actions"])))
    except (ValueError, TypeError, KeyError):
        raise DataError(f'{where} is no trajectory; expected {{"states": [0, 1, 5], "actions": [3, 1]}}') from None
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    impossible = [
        (s, a, to)
        for s, a, to in zip(found.states, found.actions, found.states[1:], strict=False)
        if not (0 <= s < mdp.states and 0 <= a < mdp.actions and 0 <= to < mdp.states) or not mdp.transitions[s, a, to]
    ]
    if impossible:
        s, a, to = impossible[0]
        raise DataError(f"{where}: action {a} in state {s} never leads to state {to}; the file is of another process")
    return found
