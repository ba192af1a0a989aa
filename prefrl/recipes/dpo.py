"""Direct preference optimization on given pairs; the reference is the policy as it starts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from prefrl.config import DPOConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.report import write_run_report
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import PairSpec, resolve
from prefrl.policy.objective import pair_sums
from prefrl.policy.optimizer import learn_pairs
from prefrl.policy.preference import dpo
from prefrl.recipes.common import batches, final_checkpoint, load_pairs, load_policy, report_read, start
from prefrl.recipes.pairs import add_reference, fitting, policy_rows, weighted
from prefrl.types import Pair, Row

Rows = tuple[Row, Row]


def run(config: DPOConfig) -> RunFolder:
    """Train a policy on pairs as configured; everything is left in the run folder."""
    with start(config, "dpo") as folder:
        train, held_out = load_pairs(config.data, config.seed)
        print(f"{len(train)} training pairs, {len(held_out)} held out. Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        engine = optimize_pairs(folder, policy, train, held_out, config)
        engine.save(final_checkpoint(folder))
        write_run_report(folder)
        folder.finish({})
        print(f"Report: {folder.path / 'report.html'}")
    return folder


def optimize_pairs(
    folder: RunFolder, policy: LanguageModel, train: Sequence[Pair], held_out: Sequence[Pair], config: DPOConfig
) -> Engine:
    """The loop over batches of pairs; held-out pairs are measured after every pass."""
    spec = resolve(config.algorithm).pairs
    if spec is None:
        raise ConfigError(f"algorithm {config.algorithm!r} has no pair loss; use 'dpo', or train with: prefrl rl")
    steps = config.epochs * math.ceil(len(train) / config.batch_size)
    engine = Engine(policy, config.policy, total_steps=steps, reference=True)
    limit, allowed = config.max_tokens, config.data.max_dropped_fraction
    pairs = report_read(fitting(policy_rows(train, policy), limit, allowed), "training pairs")
    probe = report_read(fitting(policy_rows(held_out, policy), limit, allowed), "held-out pairs") if held_out else []
    add_reference([*pairs, *probe], engine)
    feed = batches(pairs, min(config.batch_size, len(pairs)), config.seed)
    with Progress("dpo", total=steps) as progress:
        for step in range(1, steps + 1):
            metrics = learn_pairs(engine, weighted(next(feed)), spec)
            folder.log(step, metrics)
            if probe and (step == steps or step % math.ceil(len(train) / config.batch_size) == 0):
                folder.log(step, held_out_metrics(engine, probe, spec), phase="eval")
            progress.step(loss=metrics["loss"], accuracy=metrics["accuracy"], margin=metrics["margin"])
    return engine


def held_out_metrics(engine: Engine, pairs: Sequence[Rows], spec: PairSpec) -> dict[str, float]:
    """Loss, implicit accuracy, margin and both log-probs on pairs, without learning from them."""
    rows = [row for pair in pairs for row in pair]
    logps = torch.stack([values.sum() for values in engine.logps(rows)])
    ref = torch.stack([row.streams["ref_logps"].sum() for row in rows])
    gain = logps - ref
    margin = gain[::2] - gain[1::2]
    label = torch.tensor([chosen.label for chosen, _ in pairs])
    sums = pair_sums(margin, logps[::2], logps[1::2], spec.beta)
    loss = float(dpo(margin, label, spec.beta, spec.loss).mean())
    return {"loss": loss, **{name: float(total / count) for name, (total, count) in sums.items()}}
