"""Direct preference optimization on given pairs; the reference is the policy as it starts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from prefrl.config import DPOConfig, SamplingConfig
from prefrl.errors import ConfigError
from prefrl.evaluate.progress import Progress
from prefrl.evaluate.run_folder import RunFolder
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.policy.algorithms import resolve
from prefrl.policy.objective import pair_sums
from prefrl.policy.optimizer import learn_pairs
from prefrl.policy.parts import PairSpec
from prefrl.policy.preference import dpo
from prefrl.recipes.common import (
    conclude,
    final_checkpoint,
    last_metrics,
    load_pairs,
    load_policy,
    report_read,
    start,
)
from prefrl.recipes.pairs import Rows, add_reference, fitting, passes, policy_rows, weighted
from prefrl.types import Pair


def run(config: DPOConfig) -> RunFolder:
    """Train a policy on pairs as configured; everything is left in the run folder."""
    pair_spec(config)  # refuse an illegal algorithm before anything is loaded
    with start(config, "dpo") as folder:
        train, held_out = load_pairs(config.data, config.seed)
        print(f"{len(train)} training pairs, {len(held_out)} held out. Loading {config.policy.name} ...", flush=True)
        policy = load_policy(config.policy, config.seed)
        engine = optimize_pairs(folder, policy, train, held_out, config)
        engine.save(final_checkpoint(folder))
        conclude(folder, last_metrics(folder, "train", "eval"))
    return folder


def pair_spec(config: DPOConfig) -> PairSpec:
    """The pair loss of the configured algorithm; refuses an algorithm without one."""
    spec = resolve(config.algorithm).pairs
    if spec is None:
        raise ConfigError(f"algorithm {config.algorithm!r} has no pair loss; use 'dpo', or train with: prefrl rl")
    return spec


def optimize_pairs(
    folder: RunFolder,
    policy: LanguageModel,
    train: Sequence[Pair],
    held_out: Sequence[Pair],
    config: DPOConfig,
    *,
    phase: str = "train",
    sampled: SamplingConfig | None = None,
) -> Engine:
    """The loop over batches of pairs; held-out pairs are measured after every pass.

    `sampled` says that this very policy drew all completions that way: their recorded log-probs are then the
    reference's, and are not computed again.
    """
    spec = pair_spec(config)
    limit, allowed = config.max_tokens, config.data.max_dropped_fraction
    pairs = report_read(fitting(policy_rows(train, policy), limit, allowed), "training pairs")
    probe = report_read(fitting(policy_rows(held_out, policy), limit, allowed), "held-out pairs") if held_out else []
    for row in (row for pair in pairs for row in pair):
        row.label += spec.label_smoothing * (1.0 - 2.0 * row.label)
    plan = passes(pairs, config.batch_size, config.epochs, config.seed)
    steps = sum(map(len, plan))
    engine = Engine(policy, config.policy, sampling=sampled, total_steps=steps, reference=sampled is None)
    if sampled is None:
        add_reference([*pairs, *probe], engine)
    step = 0
    with Progress("DPO", total=steps) as progress:
        for batches in plan:
            for batch in batches:
                step += 1
                metrics = learn_pairs(engine, weighted(batch), spec)
                folder.log(step, metrics, phase=phase)
                progress.step(loss=metrics["loss"], accuracy=metrics["accuracy"], margin=metrics["margin"])
            if probe:
                folder.log(step, held_out_metrics(engine, probe, spec), phase="eval")
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
