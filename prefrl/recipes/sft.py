"""Supervised fine-tuning on completions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prefrl.config import SFTConfig
from prefrl.data.chat import encode_completion
from prefrl.data.formats import to_completions
from prefrl.data.reading import keep_within
from prefrl.data.splits import prompt_key
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.optimizer import learn_completions
from prefrl.recipes.common import (
    batches,
    conclude,
    final_checkpoint,
    last_metrics,
    load_policy,
    report_read,
    train_and_held_out,
)
from prefrl.recipes.resuming import Checkpoints, opened
from prefrl.types import Completion, Prompt, Row

Example = tuple[Prompt, Completion]


def run(config: SFTConfig) -> RunFolder:
    """Fine-tune a policy as configured; everything is left in the run folder."""
    with opened(config, "sft") as (folder, checkpoints):
        allowed = config.data.max_dropped_fraction
        train, held_out = train_and_held_out(
            config.data,
            lambda table: to_completions(table, max_bad_fraction=allowed),
            config.seed,
            "completions",
            key=_key,
        )
        print(f"{len(train)} training completions, {len(held_out)} held out. Loading {config.policy.name} ...")
        policy = load_policy(config.policy, config.seed)
        engine = fit(folder, policy, train, held_out, config, checkpoints=checkpoints)
        engine.save(final_checkpoint(folder))
        conclude(folder, last_metrics(folder, "train", "eval"))
    return folder


def fit(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Example],
    held_out: Sequence[Example],
    config: SFTConfig,
    *,
    checkpoints: Checkpoints | None = None,
) -> Engine:
    """The loop over batches of completions; held-out ones are measured before, and after every pass."""
    rows, probe = _rows(train, policy, config), _rows(held_out, policy, config)
    size = min(config.batch_size, len(rows))
    per_epoch = math.ceil(len(rows) / size)
    steps = config.epochs * per_epoch
    engine = Engine(policy, config.policy, total_steps=steps)
    feed = batches(rows, size, config.seed)
    checkpoints = checkpoints or Checkpoints()
    done = checkpoints.restore(engine=engine)
    for _ in range(done):
        next(feed)
    if probe and not done:
        folder.log(0, {"nll": held_out_nll(engine, probe)}, phase="eval")
    with Progress("sft", total=steps - done) as progress:
        for step in range(done + 1, steps + 1):
            metrics = learn_completions(engine, next(feed))
            folder.log(step, metrics)
            if probe and step % per_epoch == 0:
                folder.log(step, {"nll": held_out_nll(engine, probe)}, phase="eval")
            checkpoints.after(step, last=step == steps)
            progress.step(nll=metrics["nll"], grad_norm=metrics["grad_norm"])
    return engine


def held_out_nll(engine: Engine, rows: Sequence[Row]) -> float:
    """Mean negative log-likelihood of a token."""
    logps = engine.logps(rows)
    return -sum(float(values.sum()) for values in logps) / sum(sum(row.mask) for row in rows)


def _key(example: Example) -> str:
    """Rows of plain text all continue the same, empty prompt: they are told apart by the text itself."""
    prompt, completion = example
    return prompt_key(prompt) if prompt.content else completion.text


def _rows(examples: Sequence[Example], policy: LanguageModel, config: SFTConfig) -> list[Row]:
    if not examples:
        return []
    rows = []
    for prompt, completion in examples:
        ids = tuple(encode_completion(policy.tokenizer, prompt, completion))
        rows.append(Row(prompt_ids=policy.encode(prompt), completion_ids=ids, mask=(True,) * len(ids)))
    lengths = [len(row.prompt_ids) + len(row.completion_ids) for row in rows]
    limit, allowed = config.max_tokens, config.data.max_dropped_fraction
    read = keep_within(rows, lengths, limit, "prompt and completion", max_dropped_fraction=allowed)
    return report_read(read, "completions")
