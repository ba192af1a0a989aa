"""The loss of a micro-batch: weighted token streams, pairs of log-probs or of scores, values; always a plain sum."""

from __future__ import annotations

import torch
from torch import Tensor

from prefrl.policy.losses import (
    clip_metrics,
    dual_clipped,
    kl_estimate,
    kl_loss,
    log_bounds,
    log_ratio,
    ratio_metrics,
    reinforce,
    row_sums,
    surrogate,
    value_loss,
)
from prefrl.policy.parts import Algorithm, ClipSpec, PairSpec
from prefrl.policy.preference import bradley_terry, dpo, split_sides
from prefrl.types import Batch, Objective, Sums


def objective_of(algorithm: Algorithm) -> Objective:
    """The loss that an algorithm's parts make."""
    if algorithm.pairs is not None:
        spec = algorithm.pairs
        return lambda batch: pair_objective(batch, spec)
    return lambda batch: stream_objective(batch, algorithm)


def stream_objective(batch: Batch, algorithm: Algorithm) -> tuple[Tensor, Sums]:
    """`sum(surrogate(rl)) + sum(ref_kl KL) - sum(entropy H) + sum(teacher_kl KL) - sum(ce log pi)`, and metrics.

    All but the cross-entropy see the policy's own tokens only.
    """
    loss = batch.logps.new_zeros(())
    metrics: Sums = {}
    if "ce" in batch.streams:
        ce, count = batch.streams["ce"], (batch.streams["ce"] != 0).sum()
        loss = loss - (ce * batch.logps).sum()
        metrics["ce"] = (-batch.logps.detach()[ce != 0].sum(), count.float())
    if "sampled" in batch.streams:
        batch = batch.where(batch.streams["sampled"] > 0)
    streams, count = batch.streams, batch.logps.new_tensor(float(len(batch.logps)))
    if "rl" in streams:
        rl_loss, rl_metrics = _policy_gradient(batch, algorithm)
        loss, metrics = loss + rl_loss, metrics | rl_metrics
    if "ref_kl" in streams:
        loss = loss + (streams["ref_kl"] * kl_loss(batch, algorithm.kl.estimator)).sum()
    if "entropy" in batch.extras:
        loss = loss - (streams["entropy"] * batch.extras["entropy"]).sum()
        metrics["entropy/exact"] = (batch.extras["entropy"].detach().sum(), count)
    if "teacher_kl" in batch.extras:
        loss = loss + (streams["teacher_kl"] * batch.extras["teacher_kl"]).sum()
        metrics["kl/teacher"] = (batch.extras["teacher_kl"].detach().sum(), count)
    return loss, metrics | _kl_metrics(batch)


def _policy_gradient(batch: Batch, algorithm: Algorithm) -> tuple[Tensor, Sums]:
    rl, clip = batch.streams["rl"], algorithm.clip
    if algorithm.ratio == "none":
        return reinforce(batch.logps, rl).sum(), {}
    ratios = log_ratio(batch.logps, batch.streams["old_logps"], batch.row, batch.rows, algorithm.ratio)
    bounds = log_bounds(ratios, batch.row, batch.rows, low=clip.low, high=clip.high, space=clip.space)
    loss = surrogate(ratios, batch.logps, rl, clip.kind, bounds)
    dual = _dual_bound(batch, clip)
    if dual is not None:
        loss = dual_clipped(loss, rl, dual)
    return loss.sum(), ratio_metrics(ratios) | clip_metrics(ratios, rl, clip.kind, bounds, dual)


def _dual_bound(batch: Batch, clip: ClipSpec) -> Tensor | None:
    """The ratio past which a negative advantage no longer counts, (N,)."""
    if not clip.dual:
        return None
    logps = batch.logps.detach()
    if clip.space == "ratio":
        return torch.full_like(logps, clip.dual)
    _, bound = log_bounds(logps, batch.row, batch.rows, low=clip.dual, high=clip.dual, space=clip.space)
    return bound.exp()


def _kl_metrics(batch: Batch) -> Sums:
    """KL(sampler || learner) and KL(learner || reference) per token, by all three estimators."""
    streams, count = batch.streams, batch.logps.new_tensor(float(len(batch.logps)))
    logps, sampler = batch.logps.detach(), streams.get("sampler_logps", streams.get("old_logps"))
    sums: Sums = {}
    for estimator in ("k1", "k2", "k3"):
        if sampler is not None:
            sums[f"kl/sampler_{estimator}"] = (kl_estimate(sampler, logps, estimator).sum(), count)
        if "ref_logps" in streams:
            sums[f"kl/ref_{estimator}"] = (kl_estimate(logps, streams["ref_logps"], estimator).sum(), count)
    return sums


def value_objective(batch: Batch, clip: float) -> tuple[Tensor, Sums]:
    """Weighted squared error of a critic's values against returns (the `vf` stream), clipped around the old values."""
    streams = batch.streams
    losses = value_loss(batch.outputs, streams["returns"], streams["old_values"], clip)
    counted = streams["vf"] != 0
    count, moved = counted.sum().float(), (batch.outputs - streams["old_values"]).abs() > clip
    return (streams["vf"] * losses).sum(), {
        "value": (batch.outputs.detach()[counted].sum(), count),
        "clip": ((moved & counted & (clip > 0)).sum().float(), count),
    }


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
    """Weighted cross-entropy (the `ce` stream); metric is the mean negative log-prob of a token."""
    count = batch.logps.new_tensor(float(len(batch.logps)))
    return -(batch.streams["ce"] * batch.logps).sum(), {"nll": (-batch.logps.detach().sum(), count)}
