"""Answers that were given and, where somebody scored them, what they got."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from prefrl.data.formats import to_completions
from prefrl.errors import DataError
from prefrl.evaluate.run_folder import SAMPLES, read
from prefrl.parsing import read_yaml
from prefrl.recipes.common import read_table, report_read
from prefrl.types import Prompt


class Given(NamedTuple):
    """An answer, and its score before; None where there is none, or it could not be scored."""

    prompt: Prompt
    text: str
    before: float | None


def data_of(completions: str) -> list[str]:
    """Where the run whose folder is named has its prompts from, those it learnt from first; nothing for a file."""
    config = Path(completions).expanduser() / "config.yaml" if completions else None
    if config is None or not config.is_file():
        return []
    data = read_yaml(str(config)).get("data") or {}
    return [str(data[name]) for name in ("train", "eval") if data.get(name)]


def given_answers(completions: str, prompts: Sequence[Prompt]) -> list[Given]:
    """The answers in the folder of a run, or in a file.

    Args:
        completions: the folder of a run, whose answers are known by the ids of their prompts; or a file.
        prompts: where the columns of a run's prompts come from.

    Raises:
        DataError: no answer belongs to one of the prompts, or a file without answers.
    """
    if not (Path(completions).expanduser() / SAMPLES).is_file():
        table = read_table(completions, flag="completions")
        found = report_read(to_completions(table), f"answers of {completions}")
        return [Given(prompt, completion.text, _score(prompt.columns)) for prompt, completion in found]
    by_id = {prompt.id: prompt for prompt in prompts}
    rows = read(Path(completions).expanduser()).samples
    known = [row for row in rows if row.get("prompt_id") in by_id]
    if not known:
        raise DataError(
            f"None of the {len(rows)} answers in {completions} is to one of the {len(prompts)} prompts. Name the "
            "prompts that the run used: --data.train FILE"
        )
    if len(known) < len(rows):
        print(f"{len(rows) - len(known)} of {len(rows)} answers are to other prompts, and left out.")
    return [Given(by_id[row["prompt_id"]], row["completion"], _number(row.get("reward"))) for row in known]


def _score(columns: Mapping[str, Any]) -> float | None:
    """What `prefrl score` wrote, or a column `reward`."""
    said = columns.get("score", columns.get("reward"))
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return None
    return _number(said.get("value") if isinstance(said, Mapping) else said)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
