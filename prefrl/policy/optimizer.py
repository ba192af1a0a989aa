"""The one common policy optimizer. It never asks for an algorithm's name, a reward's kind or a model's type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.policy.advantages import uniform
from prefrl.policy.algorithms import Algorithm, PairSpec
from prefrl.policy.credit import Scored, countable, group_ids, paired_rows, weighted_rows
from prefrl.policy.objective import objective_of, pair_objective, supervised_objective
from prefrl.types import Objective, Prompt, Rollout, Row, Score, StepResult


class Policy(Protocol):
    """What the optimizer asks of a policy: five verbs. A language model and a control policy both answer."""

    @property
    def version(self) -> int:
        """Number of updates made so far."""
        ...

    @property
    def budget(self) -> int:
        """Most tokens (actions) a rollout can have."""
        ...

    def sample(self, prompts: Sequence[Prompt], n: int, *, seed: int) -> list[Rollout]:
        """Draw `n` rollouts of every prompt."""
        ...

    def logps(self, rows: Sequence[Row], who: Literal["policy", "reference"]) -> list[Tensor]:
        """Log-probs (n,) of every row's tokens without gradient; 0 where the mask is False."""
        ...

    def step(self, rows: Sequence[Row], objective: Objective) -> Mapping[str, float]:
        """One optimizer update on the sum of the objective over all rows; its metrics."""
        ...

    def total(self, local: Tensor) -> Tensor:
        """Sum of a tensor over all processes."""
        ...


class Scorer(Protocol):
    """A reward source whose scores were checked; `update` co-trains it and may do nothing."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score per rollout, whole groups at once."""
        ...

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> Mapping[str, float]:
        """Learn from the rollouts just used; metrics."""
        ...


@dataclass
class PolicyOptimizer:
    """Scored rollouts -> credit -> rows -> loss -> update.

    Args:
        policy: anything that answers the verbs of `Policy`.
        reward: where scores come from.
        algorithm: the parts to combine.
        updates: optimizer updates made on each batch of rollouts, each over all of it.
    """

    policy: Policy
    reward: Scorer
    algorithm: Algorithm
    updates: int = 1

    def __post_init__(self) -> None:
        stale = self.updates > 1 and self.algorithm.ratio == "none" and self.algorithm.pairs is None
        if stale:
            raise ConfigError(
                f"updates is {self.updates}, but algorithm {self.algorithm.name!r} has no importance ratio: from the "
                "second update on its gradient would be wrong. Set updates to 1, or algorithm.ratio to 'token'."
            )

    def step(self, prompts: Sequence[Prompt], *, seed: int) -> StepResult:
        """Sample a group per prompt, score, and update the policy once (or `updates` times).

        Raises:
            RewardError: no rollout could be scored, or a score is not finite.
        """
        rollouts = self.policy.sample(prompts, self.algorithm.group_size, seed=seed)
        scores = self.reward.score(rollouts)
        metrics = self.learn(rollouts, scores)
        metrics |= self.reward.update(rollouts, scores)
        return StepResult(metrics=metrics, rollouts=rollouts, scores=scores, version=self.policy.version)

    def learn(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
        """Update the policy on rollouts that were sampled and scored elsewhere; metrics."""
        scored = countable(rollouts, scores, self.algorithm.overlong)
        _refuse_nonfinite(scored)
        metrics = rollout_metrics(rollouts, scores)
        if not scored:
            raise RewardError(
                f"None of {len(rollouts)} rollouts can be learnt from: each was unscored, empty or masked as overlong. "
                "Raise sampling.max_new_tokens, or set algorithm.overlong to 'keep'."
            )
        if "reference" in self.algorithm.needs:
            scored = self._with_reference(scored)
            metrics["kl/ref"] = _sequence_kl(scored)
        rows = self._rows(scored)
        objective = objective_of(self.algorithm)
        for _ in range(self.updates):
            metrics |= self.policy.step(rows, objective)
        return metrics

    def _rows(self, scored: list[Scored]) -> list[Row]:
        if self.algorithm.pairs is not None:
            return paired_rows(scored, self.algorithm.pairs.label_smoothing, self.policy.total)
        return weighted_rows(scored, self.algorithm, self.policy.budget, self.policy.total)

    def _with_reference(self, scored: list[Scored]) -> list[Scored]:
        rows = [
            Row(
                prompt_ids=s.rollout.prompt_ids,
                completion_ids=s.rollout.completion_ids,
                mask=s.rollout.mask,
                observations=s.rollout.observations,
            )
            for s in scored
        ]
        logps = self.policy.logps(rows, "reference")
        return [replace(s, ref_logps=ref) for s, ref in zip(scored, logps, strict=True)]


def learn_pairs(policy: Policy, rows: Sequence[Row], spec: PairSpec) -> dict[str, float]:
    """One update on given pairs: rows with side +1 / -1 and `ref_logps`, the pairs' weights summing to 1."""
    if not rows:
        raise DataError("No pairs to learn from; expected at least one chosen and one rejected completion.")
    return dict(policy.step(rows, lambda batch: pair_objective(batch, spec)))


def learn_completions(policy: Policy, rows: Sequence[Row]) -> dict[str, float]:
    """One supervised update: mean negative log-likelihood over all scored tokens of the rows."""
    count = float(policy.total(torch.tensor([float(sum(sum(r.mask) for r in rows))])))
    if not count:
        raise DataError("No completion tokens to learn from; every completion is empty.")
    for row in rows:
        row.streams["ce"] = torch.full((len(row.mask),), 1.0 / count)
    return dict(policy.step(rows, supervised_objective))


def _refuse_nonfinite(scored: Sequence[Scored]) -> None:
    for item in scored:
        if not math.isfinite(item.score.total):
            raise RewardError(
                f"The score of prompt {item.rollout.prompt.id!r} is {item.score.total}; expected a finite number. "
                "Return Score.failed(reason) for what cannot be scored."
            )


def _sequence_kl(scored: Sequence[Scored]) -> float:
    """Mean over rollouts of `sum_t log pi - log ref`: KL to the reference in nats per answer."""
    gaps = []
    for s in scored:
        assert s.ref_logps is not None
        mask = torch.tensor(s.rollout.mask)
        gaps.append(float((torch.tensor(s.rollout.logps) - s.ref_logps)[mask].sum()))
    return sum(gaps) / len(gaps)


def rollout_metrics(rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
    """Rewards and their parts, lengths, stop reasons, groups and errors of one batch."""
    scored = countable(rollouts, scores, "keep")
    lengths = [sum(r.mask) for r in rollouts]
    metrics = {
        "length/mean": _mean(lengths),
        "length/max": float(max(lengths, default=0)),
        "errors": _mean([not s.ok for s in scores]),
        "entropy": -_mean([p for r in rollouts for p, m in zip(r.logps, r.mask, strict=True) if m]),
    }
    for reason in {r.stop for r in rollouts}:
        metrics[f"stop/{reason.value}"] = _mean([r.stop is reason for r in rollouts])
    if not scored:
        return metrics
    totals = torch.tensor([s.score.total for s in scored], dtype=torch.float64)
    metrics["reward/mean"] = float(totals.mean())
    metrics["reward/std"] = float(totals.std(correction=0))
    for name in {part for s in scored for part in s.score.parts}:
        metrics[f"reward/part/{name}"] = _mean([s.score.parts[name] for s in scored if name in s.score.parts])
    return metrics | _group_metrics(totals, group_ids(scored))


def _group_metrics(totals: Tensor, groups: Tensor) -> dict[str, float]:
    """Fractions of groups: uniform or mixed and, where all rewards lie in [0, 1], all-fail and all-pass."""
    flat = uniform(totals, groups)
    fraction = {"all_fail": 0, "all_pass": 0, "uniform": 0, "mixed": 0}
    names = groups.unique()
    unit = bool(((totals >= 0.0) & (totals <= 1.0)).all())
    for group in names:
        mine = groups == group
        if not bool(flat[mine].all()):
            fraction["mixed"] += 1
            continue
        fraction["uniform"] += 1
        if unit and float(totals[mine][0]) in (0.0, 1.0):
            fraction["all_pass" if float(totals[mine][0]) else "all_fail"] += 1
    if not unit:
        del fraction["all_fail"], fraction["all_pass"]
    return {f"groups/{name}": count / len(names) for name, count in fraction.items()}


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values)) if values else 0.0
