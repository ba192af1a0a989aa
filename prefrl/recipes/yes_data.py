"""Answers with outcomes for a yes-probability model: from a file, or sampled and scored; as rows to ask about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from prefrl.config import YesConfig
from prefrl.data.chat import encode_completion
from prefrl.data.formats import to_completions
from prefrl.data.reading import Problem, Read, collect, keep_within
from prefrl.data.tables import Table
from prefrl.errors import ConfigError, DataError
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.model.yes_probability import YesModel, query_row
from prefrl.recipes.common import Checked, load_prompts, report_read, train_and_held_out
from prefrl.rewards.specs import build
from prefrl.types import Completion, Prompt, Rollout, Row, StopReason

OUTCOMES = ("outcome", "reward", "label", "score")  # columns that say what came of it, the first one there is read


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer and what came of it, in [0, 1]."""

    prompt: Prompt
    completion: Completion
    value: float


def outcomes(config: YesConfig, model: LanguageModel) -> tuple[list[Outcome], list[Outcome]]:
    """To learn from and held out; no prompt is in both.

    Raises:
        ConfigError: neither outcomes nor rewards.
        DataError: unusable rows beyond what is allowed, an outcome outside [low, high] among them.
    """
    if config.rewards:
        return _sampled(config, model)
    allowed = config.data.max_dropped_fraction

    def convert(table: Table) -> Read[Outcome]:
        return to_outcomes(table, config.low, config.high, max_bad_fraction=allowed)

    return train_and_held_out(config.data, convert, config.seed, "answers")


def to_outcomes(table: Table, low: float, high: float, *, max_bad_fraction: float) -> Read[Outcome]:
    """Rows with prompt, completion and one of `OUTCOMES`, moved from [low, high] to [0, 1].

    Raises:
        DataError: a column is missing, or too many rows are bad.
    """
    column = next((name for name in OUTCOMES if name in table.columns), "")
    if not column:
        raise DataError(
            f"{table.origin} has the columns {', '.join(table.columns)}; expected prompt, completion and one of "
            f"{', '.join(OUTCOMES)}. Or name rewards, which score sampled completions."
        )

    def convert(row: dict[str, Any]) -> Outcome:
        value = _number(row, column)
        if not low - 1e-9 <= value <= high + 1e-9:
            raise Problem(f"{column} outside [{low:g}, {high:g}] (set low and high)")
        only = Table([row], table.columns, table.origin)
        ((prompt, completion),) = to_completions(only, max_bad_fraction=0.0).items
        return Outcome(prompt, completion, min(max((value - low) / (high - low), 0.0), 1.0))

    return collect(table, convert, max_bad_fraction)


def _number(row: Mapping[str, Any], column: str) -> float:
    value = row.get(column)
    if isinstance(value, bool):
        return float(value)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Problem(f"{column} is not a number") from None


def _sampled(config: YesConfig, model: LanguageModel) -> tuple[list[Outcome], list[Outcome]]:
    writer = load(config.sampler, device=config.model.device) if config.sampler else model
    parts = load_prompts(config.data, writer, config.seed)
    reward = Checked(build(config.rewards), config.max_error_fraction)
    train, held_out = (_scored(config, writer, reward, prompts, seed) for seed, prompts in enumerate(parts))
    return train, held_out


def _scored(
    config: YesConfig, writer: LanguageModel, reward: Checked, prompts: Sequence[Prompt], seed: int
) -> list[Outcome]:
    if not prompts:
        return []
    rollouts = writer.sample(prompts, config.samples, config.sampling, seed=config.seed * 1_000 + seed)
    scores = reward.score(rollouts)
    kept = [(r, s.total) for r, s in zip(rollouts, scores, strict=True) if s.ok]
    if len(kept) < len(rollouts):
        print(f"{len(rollouts) - len(kept)} of {len(rollouts)} completions could not be scored and are left out")
    span = config.high - config.low
    unit = [(r, (total - config.low) / span) for r, total in kept]
    if wrong := [total for _, total in kept if not config.low - 1e-9 <= total <= config.high + 1e-9]:
        raise ConfigError(
            f"{len(wrong)} of {len(kept)} rewards lie outside [{config.low:g}, {config.high:g}], such as {wrong[0]:g}. "
            "Set low and high to the least and the most reward."
        )
    return [Outcome(r.prompt, _written(r), min(max(value, 0.0), 1.0)) for r, value in unit]


def _written(rollout: Rollout) -> Completion:
    finished = rollout.stop is not StopReason.LENGTH
    return Completion(text=rollout.text, finished=finished)


def rows_of(given: Sequence[Outcome], model: YesModel, config: YesConfig) -> list[Row]:
    """Rows that ask at the end of every answer, and at `positions` further places, with the outcome as the return.

    The reward comes last, so that the outcome is the reward-to-go at every place. An answer that was cut off has no
    end-of-turn token. What is over `max_tokens`, or leaves no positions for the question, is left out and counted.
    """
    rows = []
    for one in given:
        row = _row(one, model, config.positions)
        row.streams["returns"] = torch.full((len(row.mask),), one.value)
        rows.append(row)
    lengths = [len(row.prompt_ids) + len(row.completion_ids) - 1 for row in rows]
    if not rows:
        return []
    allowed, limit = config.data.max_dropped_fraction, model.most_tokens(config.max_tokens)
    read = keep_within(rows, lengths, limit, "prompt and completion", max_dropped_fraction=allowed)
    return report_read(read, "answers")


def _row(one: Outcome, model: YesModel, positions: int) -> Row:
    language = model.model
    ids = encode_completion(language.tokenizer, one.prompt, replace(one.completion, ids=None))
    if not one.completion.finished and ids and ids[-1] in language.eos:
        ids = ids[:-1]
    n = len(ids)
    places = sorted({n, *(n * k // (positions + 1) for k in range(positions + 1) if positions)})
    return query_row(language.encode(one.prompt), ids, places)
