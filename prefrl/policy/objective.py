"""The loss of a micro-batch: weighted token streams, pairs of log-probs or pairs of scores; always a plain sum."""

from __future__ import annotations

import torch
from torch import Tensor

from prefrl.policy.algorithms import Algorithm, PairSpec
from prefrl.policy.losses import (
    clip_metrics,
    cross_entropy,
    kl_estimate,
    kl_loss,
    log_ratio,
    row_sums,
    surrogate,
)
from prefrl.policy.preference import bradley_terry, dpo, split_sides
from prefrl.types import Batch, Objective, Sums


def objective_of(algorithm: Algorithm) -> Objective:
    """The loss that an algorithm's parts make."""
    if algorithm.pairs is not None:
        spec = algorithm.pairs
        return lambda batch: pair_objective(batch, spec)
    return lambda batch: stream_objective(batch, algorithm)


def stream_objective(batch: Batch, algorithm: Algorithm) -> tuple[Tensor, Sums]:
    """`sum(surrogate with rl) + sum(ref_kl * kl)`, and its metrics."""
    streams, count = batch.streams, batch.logps.new_tensor(float(len(batch.logps)))
    ratios = log_ratio(batch.logps, streams["old_logps"], batch.row, batch.rows, algorithm.ratio)
    clip = algorithm.clip
    loss = surrogate(ratios, batch.logps, streams["rl"], clip.kind, clip.low, clip.high).sum()
    drift = (streams["old_logps"] - batch.logps.detach()).sum()
    metrics: Sums = {"kl/sampler": (drift, count)}
    if algorithm.ratio != "none":
        metrics |= clip_metrics(ratios, streams["rl"], clip.low, clip.high)
    if "ref_kl" in streams:
        loss = loss + (streams["ref_kl"] * kl_loss(batch, algorithm.kl.estimator)).sum()
    if "ref_logps" in streams:
        with torch.no_grad():
            metrics["kl/ref_token"] = (kl_estimate(batch.logps, streams["ref_logps"], "k3").sum(), count)
    return loss, metrics


def pair_objective(batch: Batch, spec: PairSpec) -> tuple[Tensor, Sums]:
    """Weighted sum of the pair loss over pairs, and its metrics."""
    logps = row_sums(batch.logps, batch.row, batch.rows)
    ref = row_sums(batch.streams["ref_logps"], batch.row, batch.rows)
    chosen, rejected = split_sides(logps, batch.side, batch.atom)
    gain_chosen, gain_rejected = split_sides(logps - ref, batch.side, batch.atom)
    label, _ = split_sides(batch.label, batch.side, batch.atom)
    weight, _ = split_sides(batch.weight, batch.side, batch.atom)
    margin = gain_chosen - gain_rejected
    loss = (weight * dpo(margin, label, spec.beta, spec.loss)).sum()
    return loss, pair_sums(margin.detach(), chosen.detach(), rejected.detach(), spec.beta)


def pair_sums(margin: Tensor, chosen: Tensor, rejected: Tensor, beta: float) -> Sums:
    """Implicit accuracy, margin and both absolute log-probs of pairs (P,), as sums and counts."""
    count = margin.new_tensor(float(len(margin)))
    return {
        "accuracy": ((margin > 0).float().sum(), count),
        "margin": (beta * margin.sum(), count),
        "chosen_logp": (chosen.sum(), count),
        "rejected_logp": (rejected.sum(), count),
    }


def reward_objective(batch: Batch, center: float) -> tuple[Tensor, Sums]:
    """Weighted Bradley-Terry loss over pairs of scores, plus `center * (chosen + rejected)^2`."""
    chosen, rejected = split_sides(batch.outputs, batch.side, batch.atom)
    label, _ = split_sides(batch.label, batch.side, batch.atom)
    margin, _ = split_sides(batch.margin, batch.side, batch.atom)
    weight, _ = split_sides(batch.weight, batch.side, batch.atom)
    losses = bradley_terry(chosen, rejected, label, margin) + center * (chosen + rejected) ** 2
    gap, count = (chosen - rejected).detach(), chosen.new_tensor(float(len(chosen)))
    return (weight * losses).sum(), {"accuracy": ((gap > 0).float().sum(), count), "margin": (gap.sum(), count)}


def supervised_objective(batch: Batch) -> tuple[Tensor, Sums]:
    """Weighted cross-entropy (the `ce` stream); metric is the mean log-prob of a token."""
    loss = cross_entropy(batch).sum()
    count = batch.logps.new_tensor(float(len(batch.logps)))
    return loss, {"nll": (-batch.logps.detach().sum(), count)}
