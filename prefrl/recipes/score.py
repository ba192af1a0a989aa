"""Score the completions of a file with any reward source: one row in, one row out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from prefrl.config import ScoreConfig
from prefrl.data.formats import to_completions, to_pairs
from prefrl.data.tables import Table
from prefrl.errors import ConfigError, DataError, RunError
from prefrl.evaluate.blocks import show_number
from prefrl.evaluate.files import to_plain, write_atomic, writing
from prefrl.evaluate.statistics import sign_test
from prefrl.recipes.common import Checked, quiet, read_table, report_read
from prefrl.rewards.base import error_counts, parts_of
from prefrl.rewards.functions import SHARED, FunctionReward
from prefrl.rewards.specs import build
from prefrl.types import Completion, Prompt, Rollout, Score, StopReason

_ROW = "__row__"  # column that carries a row's index through the readers, which may leave rows out

Texts = list[tuple[int, Prompt, Completion]]  # index of the row, what was asked, what was answered


def run(config: ScoreConfig) -> None:
    """Score every completion (both sides of a pair), write the rows with their scores, and print a summary.

    A row keeps its columns and gains `score`, or `chosen_score` and `rejected_score` for pairs, each with
    `value`, `parts` and `error`. A row that cannot be scored has the value null and says why.

    Raises:
        ConfigError: no data or no rewards, or a reward that needs the policy's tokens, which texts do not have.
        RunError: the output is there already, or cannot be written.
    """
    if not config.rewards:
        raise ConfigError("rewards is empty; name at least one: --rewards '[{kind: numeric, column: answer}]'")
    if config.output:
        _check_output(Path(config.output))
    table = read_table(config.data, flag="data")
    quiet()
    source = build(config.rewards)
    refuse_token_rewards(config.rewards, source)
    reward = Checked(source, max_error_fraction=1.0)  # errors are written beside their rows
    scores = {}
    for column, texts in _read(table).items():
        rollouts = [text_rollout(prompt, completion) for _, prompt, completion in texts]
        scores[column] = dict(zip([row for row, _, _ in texts], reward.score(rollouts), strict=True))
    Console().print(summary(scores, f"{config.data}: {source.name}"))
    if config.output:
        _write(Path(config.output), table, scores)
        print(f"Scores: {config.output}")


def text_rollout(prompt: Prompt, completion: Completion) -> Rollout:
    """A text as a rollout for sources that read texts: it has no tokens at all, rather than made-up ones."""
    stop = StopReason.EOS if completion.finished else StopReason.LENGTH
    return Rollout(
        prompt=prompt, completion_ids=(), mask=(), logps=(), text=completion.text, stop=stop, group=prompt.id
    )


def summary(scores: dict[str, dict[int, Score]], title: str) -> RichTable:
    """Mean and spread of every score and of its parts, and what could not be scored."""
    table = RichTable(title=escape(title), title_justify="left", caption_justify="left")
    table.add_column("score")
    for column in ("scored", "errors", "mean", "std", "lowest", "highest"):
        table.add_column(column, justify="right")
    notes = []
    for name, found in scores.items():
        good = [score for score in found.values() if score.ok]
        table.add_row(name, str(len(good)), str(len(found) - len(good)), *_spread([s.total for s in good]))
        for part in dict.fromkeys(part for score in good for part in score.parts):
            values = [score.parts[part] for score in good if part in score.parts]
            table.add_row(f"  {escape(part)}", str(len(values)), "", *_spread(values))
        notes += [f"{count} of {name}: {why}" for why, count in error_counts(list(found.values())).items()]
    if len(scores) == 2:
        notes.append(_preference(*scores.values()))
    table.caption = escape("\n".join(notes)) or None
    return table


def _preference(chosen: dict[int, Score], rejected: dict[int, Score]) -> str:
    both = [row for row in chosen if chosen[row].ok and rejected[row].ok]
    test = sign_test([chosen[row].total for row in both], [rejected[row].total for row in both])
    return f"chosen scores higher in {test.wins} of {len(both)} pairs, lower in {test.losses}, the same in {test.ties}"


def _spread(values: Sequence[float]) -> list[str]:
    return [show_number(f(values)) for f in (fmean, pstdev, min, max)] if values else ["-"] * 4


def _read(table: Table) -> dict[str, Texts]:
    """Texts by the column that their scores go to."""
    rows = [{**row, _ROW: index} for index, row in enumerate(table.rows)]
    numbered = Table(rows, (*table.columns, _ROW), table.origin)
    if {"chosen", "rejected"} <= set(table.columns) and "completion" not in table.columns:
        pairs = report_read(to_pairs(numbered), "pairs")
        columns = {
            "chosen_score": [_placed(pair.prompt, pair.chosen) for pair in pairs],
            "rejected_score": [_placed(pair.prompt, pair.rejected) for pair in pairs],
        }
    else:
        columns = {"score": [_placed(*item) for item in report_read(to_completions(numbered), "completions")]}
    if taken := [name for name in columns if name in table.columns]:
        raise DataError(f"{table.origin} has a column {taken[0]!r} already; rename or remove it, then score again.")
    return columns


def _placed(prompt: Prompt, completion: Completion) -> tuple[int, Prompt, Completion]:
    others = {name: value for name, value in prompt.columns.items() if name != _ROW}
    return prompt.columns[_ROW], replace(prompt, columns=others), completion


def refuse_token_rewards(specs: Sequence[Any], source: Any) -> None:
    """Texts have no tokens: a source that counts or reads them would be given none."""
    words = "texts in a file have none; use unit: words or characters, or a function of `text`"
    if any(settings.get("unit") == "tokens" for settings in _mappings(specs)):
        raise ConfigError(f"A reward counts the tokens that a policy sampled, and {words}.")
    for part in parts_of(source):
        asked = sorted(SHARED & set(part.parameters)) if isinstance(part, FunctionReward) else []
        if asked:
            raise ConfigError(f"The reward function {part.name!r} asks for {asked[0]!r}, and {words}.")


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """All mappings in settings, at any depth."""
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _mappings(inner)


def _check_output(path: Path) -> None:
    if path.suffix != ".jsonl":
        raise ConfigError(f"output is {str(path)!r}; expected a .jsonl file, such as {path.with_suffix('.jsonl')}.")
    if path.exists():
        raise RunError(f"{path} exists already and is left alone; choose another --output.")


def _write(path: Path, table: Table, scores: dict[str, dict[int, Score]]) -> None:
    lines = []
    unread = Score.failed("the row could not be read")
    for index, row in enumerate(table.rows):
        mine = {name: _as_dict(column.get(index, unread)) for name, column in scores.items()}
        lines.append(json.dumps(to_plain({**row, **mine}), ensure_ascii=False) + "\n")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(lines))


def _as_dict(score: Score) -> dict[str, Any]:
    return {"value": score.total if score.ok else None, "parts": dict(score.parts), "error": score.error}
