"""Preference optimization on given pairs or judged completions; the reference is the policy as it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from prefrl.config import DPOConfig, SamplingConfig
from prefrl.data.reading import Read
from prefrl.data.tables import Table
from prefrl.errors import ConfigError
from prefrl.evaluate.alarms import falling_logps
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder, read
from prefrl.model.batching import row_columns
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import ALGORITHMS, resolve
from prefrl.policy.objective import pair_objective
from prefrl.policy.optimizer import learn_pairs, prepare_pairs
from prefrl.policy.parts import PairSpec
from prefrl.recipes.common import (
    conclude,
    final_checkpoint,
    last_metrics,
    load_policy,
    report_read,
    train_and_held_out,
)
from prefrl.recipes.pairs import Rows, fitting, passes, policy_rows, weighted
from prefrl.recipes.reference import reference_logps
from prefrl.recipes.resuming import Checkpoints, numbered, opened
from prefrl.recipes.unpaired import Judged, single_rows, to_judgements
from prefrl.types import Batch, Pair, Row


def run(config: DPOConfig) -> RunFolder:
    """Train a policy on pairs as configured; everything is left in the run folder."""
    spec = pair_spec(config)  # refuse an illegal algorithm before anything is loaded
    what = "pairs" if spec.paired else "judgements"
    with opened(config, "dpo") as (folder, checkpoints):

        def convert(table: Table) -> Read[Any]:
            return to_judgements(table, paired=spec.paired, max_bad_fraction=config.data.max_dropped_fraction)

        train, held_out = train_and_held_out(config.data, convert, config.seed, what)
        print(f"{len(train)} training {what}, {len(held_out)} held out. Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        engine = optimize_pairs(folder, policy, train, held_out, config, checkpoints=checkpoints)
        engine.save(final_checkpoint(folder))
        conclude(folder, last_metrics(folder, "train", "eval"))
    return folder


def pair_spec(config: DPOConfig) -> PairSpec:
    """The pair loss of the configured algorithm; refuses an algorithm without one."""
    algorithm = resolve(config.algorithm)
    if algorithm.pairs is None:
        valid = ", ".join(name for name, other in ALGORITHMS.items() if other.pairs is not None)
        raise ConfigError(f"algorithm {algorithm.name!r} has no pair loss; use {valid}, or train with: prefrl rl")
    return algorithm.pairs


def optimize_pairs(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Pair | Judged],
    held_out: Sequence[Pair | Judged],
    config: DPOConfig,
    *,
    phase: str = "train",
    sampled: SamplingConfig | None = None,
    checkpoints: Checkpoints | None = None,
) -> Engine:
    """The loop over batches of pairs; held-out pairs are measured before, and after every pass.

    `sampled` says that this very policy drew all completions that way: their recorded log-probs are then the
    reference's, and are not computed again.
    """
    spec = pair_spec(config)
    pairs = judgement_rows(train, policy, config, "training")
    probe = judgement_rows(held_out, policy, config, "held-out") if held_out else []
    plan = passes(pairs, config.batch_size, config.epochs, config.seed)
    steps = sum(map(len, plan))
    # Single completions are compared with others under the reference in every update; pairs only with themselves.
    engine = Engine(policy, config.policy, sampling=sampled, total_steps=steps, reference=not spec.paired)
    if spec.needs_reference and sampled is None:
        rows = [row for sides in (*pairs, *probe) for row in sides]
        for row, logps in zip(rows, reference_logps(engine, rows, cache=config.cache_reference), strict=True):
            row.streams["ref_logps"] = logps
    checkpoints = checkpoints or Checkpoints()
    done = checkpoints.restore(engine=engine)
    if probe and not done:
        folder.log(0, held_out_metrics(engine, probe, spec), phase="eval")
    with Progress(resolve(config.algorithm).name, total=steps - done) as progress:
        for step, batch, ends_pass in numbered(plan, done):
            metrics = learn_pairs(engine, weighted(batch), spec)
            folder.log(step, metrics, phase=phase)
            if probe and ends_pass:
                folder.log(step, held_out_metrics(engine, probe, spec), phase="eval")
            checkpoints.after(step, last=step == steps)
            progress.step(loss=metrics["loss"], accuracy=metrics["accuracy"], margin=metrics["margin"])
    for note in falling_logps(read(folder.path), phase):
        print(f"Note: {note}", flush=True)
    return engine


def judgement_rows(items: Sequence[Pair | Judged], policy: LanguageModel, config: DPOConfig, what: str) -> list[Rows]:
    """The rows of all judgements that fit; ties and label smoothing are soft labels."""
    spec = pair_spec(config)
    settled = [_settled(item) if isinstance(item, Pair) else item for item in items]
    made = policy_rows(cast("Sequence[Pair]", settled), policy) if spec.paired else single_rows(settled, policy)
    for row in (row for sides in made for row in sides):
        row.label += spec.label_smoothing * (1.0 - 2.0 * row.label)
        row.streams = row.streams if spec.needs_reference else {}
    limit, allowed = config.max_tokens, config.data.max_dropped_fraction
    return report_read(fitting(made, limit, allowed), f"{what} {'pairs' if spec.paired else 'judgements'}")


def _settled(pair: Pair) -> Pair:
    """The pair with the side that is more likely the better one as `chosen`; a tie is half a win for each side."""
    settled = replace(pair, label=pair.label + pair.tie * (0.5 - pair.label), tie=0.0)
    return settled.swap() if settled.label < 0.5 else settled


@torch.no_grad()
def held_out_metrics(engine: Engine, pairs: Sequence[Rows], spec: PairSpec) -> dict[str, float]:
    """Loss, implicit accuracy, margin and both log-probs on pairs, without learning from them."""
    rows, baseline = prepare_pairs(engine, weighted(pairs), spec)
    loss, sums = pair_objective(_batch(rows, engine.logps(rows)), spec, baseline)
    return {"loss": float(loss), **{name: float(total / count.clamp(min=1.0)) for name, (total, count) in sums.items()}}


def _batch(rows: Sequence[Row], logps: Sequence[torch.Tensor]) -> Batch:
    """All rows as one batch, of log-probs that are known."""
    masks = [torch.tensor(row.mask) for row in rows]
    return Batch(
        outputs=torch.cat([values[mask] for values, mask in zip(logps, masks, strict=True)]),
        row=torch.arange(len(rows)).repeat_interleave(torch.tensor([int(mask.sum()) for mask in masks])),
        streams={
            name: torch.cat([row.streams[name][mask] for row, mask in zip(rows, masks, strict=True)])
            for name in rows[0].streams
        },
        extras={},
        **row_columns(rows),
    )
