"""Demonstrated completions as `prefrl irl` uses them, and plain fine-tuning on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prefrl.config import IRLConfig
from prefrl.data.chat import encode_completion
from prefrl.data.formats import to_completions
from prefrl.data.reading import keep_within
from prefrl.data.splits import prompt_key
from prefrl.errors import DataError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.optimizer import learn_completions
from prefrl.recipes.common import batches, report_read, train_and_held_out
from prefrl.types import Completion, Prompt, Row

Demonstration = tuple[Prompt, Completion]


@dataclass(frozen=True)
class TextData:
    """Demonstrations to learn from, and others whose prompts are never trained on."""

    train: list[Demonstration]
    held_out: list[Demonstration]

    @property
    def prompts(self) -> list[Prompt]:
        """Every training prompt once, in order of first appearance."""
        return _distinct(self.train)

    @property
    def held_out_prompts(self) -> list[Prompt]:
        """Every held-out prompt once."""
        return _distinct(self.held_out)

    def summary(self) -> str:
        """How much there is, in words."""
        return (
            f"{len(self.train)} demonstrations of {len(self.prompts)} prompts, {len(self.held_out)} held out of "
            f"{len(self.held_out_prompts)} others"
        )

    def fitting(self, policy: LanguageModel, config: IRLConfig) -> TextData:
        """Those that the policy could write: at most `sampling.max_new_tokens`, and `text.max_tokens` with the prompt.

        A longer one could never be imitated, and everybody could tell it from a sample; it is left out and counted.

        Raises:
            DataError: more than `data.max_dropped_fraction` are longer.
        """
        return TextData(*(_fitting(side, policy, config) for side in (self.train, self.held_out)))


def load_demonstrations(config: IRLConfig) -> TextData:
    """Training and held-out demonstrations, split by prompt.

    Raises:
        DataError: they cannot be read, or there is none.
    """
    allowed = config.data.max_dropped_fraction
    train, held_out = train_and_held_out(
        config.data,
        lambda table: to_completions(table, max_bad_fraction=allowed),
        config.seed,
        "demonstrations",
        key=prompt_key,
    )
    limit = config.demonstrations_limit
    train = train[: limit or None]
    if not train:
        raise DataError(f"{config.data.train} has no demonstrations to learn from; expected one at least.")
    return TextData(train, held_out)


def rows_of(demonstrations: Sequence[Demonstration], policy: LanguageModel) -> list[Row]:
    """The rows of demonstrations as the policy would have written them, each ending with its end of turn."""
    rows = []
    for prompt, completion in demonstrations:
        ids = tuple(encode_completion(policy.tokenizer, prompt, completion))
        rows.append(Row(prompt_ids=policy.encode(prompt), completion_ids=ids, mask=(True,) * len(ids)))
    return rows


def fine_tune(
    folder: RunFolder, policy: LanguageModel, data: TextData, config: IRLConfig, *, epochs: int, phase: str
) -> Engine:
    """Plain supervised fine-tuning on the training demonstrations, with the policy's own optimizer settings."""
    rows = rows_of(data.train, policy)
    size = min(config.text.batch_size, len(rows))
    steps = epochs * math.ceil(len(rows) / size)
    engine = Engine(policy, config.policy, sampler=policy, sampling=config.sampling, total_steps=steps)
    feed = batches(rows, size, config.seed)
    with Progress(phase.replace("_", " "), total=steps) as progress:
        for step in range(1, steps + 1):
            metrics = learn_completions(engine, [replace(row, streams={}) for row in next(feed)])
            folder.log(step, metrics, phase=phase)
            progress.step(nll=metrics["nll"])
    return engine


def _fitting(side: list[Demonstration], policy: LanguageModel, config: IRLConfig) -> list[Demonstration]:
    allowed = config.data.max_dropped_fraction
    rows = rows_of(side, policy)
    limits = {
        "completion (sampling.max_new_tokens)": ([len(r.completion_ids) for r in rows], config.sampling.max_new_tokens),
        "prompt and completion (text.max_tokens)": (
            [len(r.prompt_ids) + len(r.completion_ids) for r in rows],
            config.text.max_tokens,
        ),
    }
    kept = list(range(len(side)))
    for what, (lengths, limit) in limits.items():
        left = [lengths[i] for i in kept]
        kept = report_read(keep_within(kept, left, limit, what, max_dropped_fraction=allowed), "demonstrations")
    return [side[i] for i in kept]


def _distinct(demonstrations: Sequence[Demonstration]) -> list[Prompt]:
    found: dict[str, Prompt] = {}
    for prompt, _ in demonstrations:
        found.setdefault(prompt_key(prompt), prompt)
    return list(found.values())
