"""From credit to training rows: weights per token with the reduction folded in, pairs, selections, values."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from prefrl.policy.advantages import UNIFORM_TOLERANCE, TotalOf, reaches, reduction_weights
from prefrl.policy.credit import Credit, CreditState, Scored, credit, decisions_of, group_ids
from prefrl.policy.losses import truncated_weights
from prefrl.policy.parts import Algorithm, SelectSpec
from prefrl.types import Row


def token_weights(scored: Sequence[Scored], algorithm: Algorithm, budget: int, total_of: TotalOf) -> list[float]:
    """Weight of each sampled token of every rollout, as the reduction says; denominators are global."""
    groups = group_ids(scored)
    lengths = torch.tensor([sum(s.rollout.mask) for s in scored])
    counts = torch.tensor([len(scored), int(lengths.sum()), len(groups.unique())], dtype=torch.float64)
    weights = reduction_weights(lengths, groups, algorithm.reduction, budget, total_of(counts))
    return [float(weight) for weight in weights]


def weighted_rows(
    scored: Sequence[Scored],
    algorithm: Algorithm,
    budget: int,
    total_of: TotalOf,
    *,
    state: CreditState | None = None,
    given: Credit | None = None,
) -> list[Row]:
    """One row a rollout with the weight streams that the algorithm's parts ask for; the reduction is folded into all.

    Args:
        scored: the countable rollouts.
        budget: the generation budget in tokens, the constant of the `constant` reduction.
        total_of: sums over processes, so that denominators are global.
        state: what credit remembers; a first step's by default.
        given: credit that was computed already.
    """
    state = state or CreditState(kl_coef=algorithm.kl.coef)
    given = given or credit(scored, algorithm, state, total_of)
    weights = token_weights(scored, algorithm, budget, total_of)
    constant = {
        "ref_kl": state.kl_coef if algorithm.kl.place == "loss" else 0.0,
        "entropy": algorithm.entropy,
        "teacher_kl": algorithm.distill.coef if algorithm.distill.form == "full" else 0.0,
    }
    rows = []
    for item, advantage, weight in zip(scored, given.advantages, weights, strict=True):
        row, correction = row_of(item), _correction(item, algorithm.truncate)
        row.streams["rl"] = advantage.float() * weight * correction
        row.streams |= {name: torch.full((len(row.mask),), weight * c) for name, c in constant.items() if c}
        if "ref_kl" in row.streams:
            row.streams["ref_kl"] *= correction
        rows.append(row)
    return _with_observations(rows, algorithm.echo, total_of) if algorithm.echo else rows


def _correction(item: Scored, cap: float) -> Tensor | float:
    """Weight of each token for having been sampled by another policy than the learner."""
    if not cap:
        return 1.0
    assert item.learner_logps is not None, "truncated importance weights need the learner's log-probs"
    return truncated_weights(item.learner_logps, torch.tensor(item.rollout.logps), cap)


def _with_observations(rows: list[Row], coef: float, total_of: TotalOf) -> list[Row]:
    """Let the rows' observation tokens be learnt too: cross-entropy, the mean over all of them, times `coef`."""
    sampled = [torch.tensor(row.mask) for row in rows]
    count = float(total_of(torch.tensor([float(sum(int((~mask).sum()) for mask in sampled))])).clamp(min=1.0))
    for row, mask in zip(rows, sampled, strict=True):
        row.streams |= {"sampled": mask.float(), "ce": (~mask).float() * (coef / count)}
        row.mask = (True,) * len(row.mask)
    return rows


def selected_rows(
    scored: Sequence[Scored], algorithm: Algorithm, spec: SelectSpec, budget: int, total_of: TotalOf
) -> list[Row]:
    """The accepted rollouts as completions to learn, each distinct one of a group once; of episodes all."""
    kept: dict[tuple[str, tuple[int, ...], int], Scored] = {}
    best: dict[str, float] = {}
    for item in scored:
        group = item.rollout.group
        best[group] = max(best.get(group, item.score.total), item.score.total)
    for i, item in enumerate(scored):
        group, total = item.rollout.group, item.score.total
        if reaches(total, spec.threshold if spec.keep == "above" else best[group]):
            episode = i if item.rollout.observations is not None else -1  # equal actions are not equal episodes
            kept.setdefault((group, item.rollout.completion_ids, episode), item)
    chosen = list(kept.values())
    rows = [row_of(item) for item in chosen]
    for row, weight in zip(rows, token_weights(chosen, algorithm, budget, total_of), strict=True):
        row.streams["ce"] = torch.full((len(row.mask),), weight)
    return rows


def paired_rows(scored: Sequence[Scored], label_smoothing: float, total_of: TotalOf) -> list[Row]:
    """The best and the worst rollout of every group as a pair; groups without a difference make none."""
    rows: list[Row] = []
    for atom, group in enumerate(_groups(scored)):
        best = max(group, key=lambda s: s.score.total)
        worst = min(group, key=lambda s: s.score.total)
        if _differ(best.score.total, worst.score.total):
            rows += [_sided(best, atom, 1, label_smoothing), _sided(worst, atom, -1, label_smoothing)]
    return _averaged(rows, len(rows) / 2, total_of)


def judged_rows(scored: Sequence[Scored], label_smoothing: float, total_of: TotalOf) -> list[Row]:
    """Every rollout on its own: good above the mean of its group, bad below; at the mean it is neither and left out."""
    rows: list[Row] = []
    for group in _groups(scored):
        mean = sum(item.score.total for item in group) / len(group)
        for item in group:
            if _differ(item.score.total, mean):
                side = 1 if item.score.total > mean else -1
                rows.append(_sided(item, len(rows), side, label_smoothing))
    return _averaged(rows, len(rows), total_of)


def _groups(scored: Sequence[Scored]) -> list[list[Scored]]:
    members: dict[str, list[Scored]] = {}
    for item in scored:
        members.setdefault(item.rollout.group, []).append(item)
    return list(members.values())


def _differ(a: float, b: float) -> bool:
    return abs(a - b) > UNIFORM_TOLERANCE * max(1.0, abs(a))


def _sided(item: Scored, atom: int, side: int, label_smoothing: float) -> Row:
    row = row_of(item)
    row.atom, row.side, row.label = atom, side, 1.0 - label_smoothing
    return row


def _averaged(rows: list[Row], count: float, total_of: TotalOf) -> list[Row]:
    """The rows with weights that make the loss a mean over all processes' pairs (or completions)."""
    everywhere = float(total_of(torch.tensor([count], dtype=torch.float64)).clamp(min=1.0))
    for row in rows:
        row.weight = 1.0 / everywhere
    return rows


def with_imitation(rows: Sequence[Row], coef: float, total_of: TotalOf) -> list[Row]:
    """The rows with `ce`: `coef` times the weighted mean over all processes' tokens of preferred completions.

    Those are the chosen ones where the label says so, and neither side of a tie.
    """
    weights = [row.weight if row.side * (row.label - 0.5) > 0 else 0.0 for row in rows]
    tokens = sum(weight * sum(row.mask) for row, weight in zip(rows, weights, strict=True))
    everywhere = float(total_of(torch.tensor([tokens], dtype=torch.float64))) or 1.0
    return [
        replace(row, streams=row.streams | {"ce": torch.full((len(row.mask),), coef * weight / everywhere)})
        for row, weight in zip(rows, weights, strict=True)
    ]


def mismatched_rows(rows: Sequence[Row]) -> list[Row]:
    """Every completion after the prompt of others; none where all have the same prompt.

    Which prompt that is depends on the set of prompts alone: no order of the rows can change it.
    """
    prompts = sorted({row.prompt_ids for row in rows})
    if len(prompts) < 2:
        return []
    random.Random(0).shuffle(prompts)  # in sorted order the next prompt would be a similar one
    following = dict(zip(prompts, [*prompts[1:], prompts[0]], strict=True))
    return [Row(prompt_ids=following[row.prompt_ids], completion_ids=row.completion_ids, mask=row.mask) for row in rows]


def value_rows(scored: Sequence[Scored], given: Credit, algorithm: Algorithm, total_of: TotalOf) -> list[Row]:
    """Rows that a critic learns from: returns at the first token of each decision, the loss their mean."""
    assert given.returns is not None, "only the baseline 'critic' has returns"
    starts = [[tokens[0] for tokens in decisions_of(item, algorithm)] for item in scored]
    count = float(total_of(torch.tensor([float(sum(len(s) for s in starts))])).clamp(min=1.0))
    rows = []
    for item, returns, at in zip(scored, given.returns, starts, strict=True):
        assert item.values is not None
        mask = torch.zeros(len(returns), dtype=torch.bool)
        mask[at] = True
        streams = {"returns": returns.float(), "old_values": item.values.float(), "vf": mask.float() / count}
        rows.append(bare_row(item, tuple(mask.tolist()), streams))
    return rows


def history_rows(scored: Sequence[Scored], algorithm: Algorithm) -> list[Row]:
    """Rows to read values from: at the first token of each decision and, where more was to come, after the last token.

    The token appended for that is never looked at: a value is that of the history before its token.
    """
    rows = []
    for item in scored:
        starts = {tokens[0] for tokens in decisions_of(item, algorithm)}
        row = bare_row(item, tuple(i in starts for i in range(len(item.rollout.mask))), {})
        if item.awaits:
            row.completion_ids, row.mask = (*row.completion_ids, 0), (*row.mask, True)
        rows.append(row)
    return rows


def row_of(item: Scored) -> Row:
    """A rollout's row with the log-probs it was sampled and is compared with.

    Where the learner's own are known they are those of the old policy, and the sampler's stand beside them.
    """
    sampler = torch.tensor(item.rollout.logps, dtype=torch.float32)
    streams = {"old_logps": sampler}
    if item.learner_logps is not None:
        streams = {"old_logps": item.learner_logps, "sampler_logps": sampler}
    if item.ref_logps is not None:
        streams["ref_logps"] = item.ref_logps
    return bare_row(item, item.rollout.mask, streams)


def bare_row(item: Scored, mask: tuple[bool, ...], streams: Mapping[str, Tensor]) -> Row:
    """A rollout's row with these streams and nothing else."""
    return Row(
        prompt_ids=item.rollout.prompt_ids,
        completion_ids=item.rollout.completion_ids,
        mask=mask,
        observations=item.rollout.observations,
        actions=item.rollout.actions,
        streams=dict(streams),
    )
