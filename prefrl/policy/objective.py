"""The loss of a micro-batch: weighted token streams, pairs of log-probs or of scores, values; always a plain sum."""

from __future__ import annotations

import torch
from torch import Tensor

from prefrl.policy.judgement import Comparisons, LabelModel, comparisons_of, lists_of
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
from prefrl.policy.preference import divergence_slope, log_odds, pair_loss, prospect_loss, split_sides, tail_weights
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


def pair_objective(batch: Batch, spec: PairSpec, baseline: float = 0.0) -> tuple[Tensor, Sums]:
    """Weighted sum of the loss over pairs (or single completions), `- sum(ce log pi)` beside it, and metrics.

    Args:
        batch: rows of side +1 and -1; where completions come in pairs, both sides of each.
        spec: the loss and what it looks at.
        baseline: z0, what the scores of single completions are compared with.
    """
    scores = implicit_scores(batch, spec)
    loss, sums = _compared(batch, scores, spec) if spec.paired else _judged(batch, scores - baseline, spec)
    loss = spec.coef * loss
    if "ce" in batch.streams:
        loss = loss - (batch.streams["ce"] * batch.logps).sum()
    logps = row_sums(batch.logps.detach(), batch.row, batch.rows)
    for name, side in (("chosen_logp", batch.side > 0), ("rejected_logp", batch.side < 0)):
        sums[name] = (logps[side].sum(), side.sum().to(logps.dtype))
    return loss, sums


def implicit_scores(batch: Batch, spec: PairSpec) -> Tensor:
    """What each completion is worth to the policy, (R,), with gradient."""
    lengths = row_sums(torch.ones_like(batch.logps, requires_grad=False), batch.row, batch.rows)
    values = batch.logps
    if spec.needs_reference:
        values = values - batch.streams["ref_logps"]
    if spec.ld_alpha != 1.0:
        values = values * tail_weights(lengths, batch.row, batch.atom, spec.ld_alpha)
    scores = row_sums(values, batch.row, batch.rows)
    if spec.needs_reference:
        scores = divergence_slope(scores, spec.divergence, spec.alpha)
    if spec.average:
        scores = scores / lengths.clamp(min=1.0)
    return log_odds(scores) if spec.score == "log_odds" else scores


def _compared(batch: Batch, scores: Tensor, spec: PairSpec) -> tuple[Tensor, Sums]:
    chosen, rejected = split_sides(scores, batch.side, batch.atom)
    label, _ = split_sides(batch.label, batch.side, batch.atom)
    weight, _ = split_sides(batch.weight, batch.side, batch.atom)
    margin = chosen - rejected
    loss = (weight * pair_loss(margin, label, spec.beta, spec.loss, spec.gamma)).sum()
    return loss, _implicit(margin.detach(), label, spec.beta)


def _judged(batch: Batch, gain: Tensor, spec: PairSpec) -> tuple[Tensor, Sums]:
    good = torch.where(batch.side > 0, batch.label, 1.0 - batch.label)
    losses = prospect_loss(gain, good, spec.beta, desirable=spec.desirable, undesirable=spec.undesirable)
    return (batch.weight * losses).sum(), _implicit(batch.side * gain.detach(), batch.label, spec.beta)


def _implicit(margin: Tensor, label: Tensor, beta: float) -> Sums:
    """Implicit accuracy and margin of decided judgements, in the direction of the label and whatever their weight.

    A margin of exactly 0, as at the reference, is half right. That of a single completion is how far it is on its side
    of z0.
    """
    decided = label != 0.5
    toward = (margin * torch.sign(label - 0.5))[decided]
    right = torch.heaviside(toward, toward.new_tensor(0.5))
    return {"accuracy": (right.sum(), decided.sum()), "margin": (beta * toward.sum(), decided.sum())}


def reward_objective(batch: Batch, labels: LabelModel, center: float) -> tuple[Tensor, Sums]:
    """Weighted loss of pairs and ranked lists, and `center * (first + second)^2` of every two that were compared.

    Scores are (R,), or (R, K) of K heads, over which losses are averaged. The stream `bootstrap`, shaped alike, weighs
    each judgement for each head. Gradients reach the parameters of the label model too, and agreement is counted there.

    Metrics: `accuracy` and `margin` of decided comparisons, in the direction of the label; `nll` of all without
    smoothing, margins and bootstrap; the share of `ties`, beside `ties/predicted` where they are modelled.
    """
    scores = batch.outputs.reshape(batch.rows, -1)
    copies = batch.streams.get("bootstrap", torch.ones_like(scores)).reshape(batch.rows, -1)
    pairs, lists = comparisons_of(batch), lists_of(batch)
    total = scores[pairs.first] + scores[pairs.second]
    loss, _ = labels.total(scores, copies, pairs, lists)
    if center:
        loss = loss + center * (pairs.weight[:, None] * copies[pairs.first] * total**2).mean(1).sum()
    with torch.no_grad():
        nll = labels.total(scores, torch.ones_like(scores), pairs, lists, plain=True)
        return loss, {"nll": nll, **_reward_sums(scores.mean(1), pairs, labels, learning=loss.requires_grad)}


def _reward_sums(scores: Tensor, pairs: Comparisons, labels: LabelModel, *, learning: bool) -> Sums:
    """Accuracy, margin and ties of comparisons under scores (R,); while learning it is noted who agreed."""
    gap, count = scores[pairs.first] - scores[pairs.second], scores.new_tensor(float(len(pairs.first)))
    decided = (pairs.label != 0.5) & (pairs.tie < 0.5)
    toward = (gap * torch.sign(pairs.label - 0.5))[decided]
    if learning:
        labels.observe(toward, pairs.annotator[decided])
    sums = {
        "accuracy": ((toward > 0).float().sum(), decided.sum()),
        "margin": (toward.sum(), decided.sum()),
        "ties": (pairs.tie.sum(), count),
    }
    if labels.models_ties:
        sums["ties/predicted"] = (labels.tie_probability(gap).sum(), count)
    return sums


def supervised_objective(batch: Batch) -> tuple[Tensor, Sums]:
    """Weighted cross-entropy (the `ce` stream); metric is the mean negative log-prob of a token."""
    count = batch.logps.new_tensor(float(len(batch.logps)))
    return -(batch.streams["ce"] * batch.logps).sum(), {"nll": (-batch.logps.detach().sum(), count)}
