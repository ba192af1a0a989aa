"""Questions of the package reasoning-gym, which makes them by the thousand; where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from prefrl.errors import ConfigError, DataError, did_you_mean

SIZE, SEED = 500, 0
_HOW = "Write the final answer, and nothing else, between <answer> and </answer>."


def generated(name: str, rest: Sequence[str]) -> list[dict[str, Any]]:
    """Prompt rows of `task:reasoning_gym:DATASET[:SIZE]`, the same ones every time.

    What the dataset made is kept in the columns `answer` and `metadata`, which the reward `reasoning_gym` hands back to
    it, and the dataset's name in the column `reasoning_gym`.

    Args:
        name: the whole name, for messages.
        rest: what it says after `reasoning_gym`.

    Raises:
        ConfigError: the package is not installed.
        DataError: there is no such dataset, or the size is no positive number.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError(f"{name} needs the package reasoning-gym; type: pip install reasoning-gym")
    package: Any = importlib.import_module("reasoning_gym")
    if not 1 <= len(rest) <= 2 or not all(part.isdigit() and int(part) > 0 for part in rest[1:]):
        raise DataError(f"got {name}; expected task:reasoning_gym:DATASET[:SIZE][:train|held_out]")
    dataset, size = rest[0], int(rest[1]) if len(rest) > 1 else SIZE
    known = package.factory.DATASETS
    if dataset not in known:
        raise DataError(
            f"{name}: reasoning-gym has no dataset {dataset!r} among its {len(known)}.{did_you_mean(dataset, known)}"
        )
    made = package.create_dataset(dataset, size=size, seed=SEED)
    return [_row(dataset, number, entry) for number, entry in enumerate(made)]


def _row(dataset: str, number: int, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{dataset}-{number}",
        "prompt": [{"role": "user", "content": f"{entry['question']}\n\n{_HOW}"}],
        "reasoning_gym": dataset,
        **{key: entry[key] for key in ("question", "answer", "metadata")},
    }
