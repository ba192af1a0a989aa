"""The one common policy optimizer. It never asks for an algorithm's name, a reward's kind or a model's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from prefrl.errors import ConfigError, DataError, RewardError
from prefrl.policy.advantages import moments
from prefrl.policy.credit import Credit, CreditState, Scored, countable, credit
from prefrl.policy.critic_metrics import Probe, plain_explained_variance
from prefrl.policy.gather import More, Scorer, gather
from prefrl.policy.metrics import (
    explained_variance,
    rollout_metrics,
    sampled_teacher_kl,
    sequence_kl,
    staleness,
    with_sample_size,
)
from prefrl.policy.minibatches import Minibatches
from prefrl.policy.objective import objective_of, pair_objective, supervised_objective
from prefrl.policy.parts import Algorithm, PairSpec
from prefrl.policy.rows import (
    bare_row,
    history_rows,
    judged_rows,
    mismatched_rows,
    paired_rows,
    selected_rows,
    value_rows,
    weighted_rows,
    with_imitation,
)
from prefrl.policy.values import critic_objective
from prefrl.types import Extra, Objective, Prompt, Rollout, Row, Score, StepResult

ROUND_SEEDS = 10**12  # seeds between the rounds of one step: further apart than those of all steps


class Policy(Protocol):
    """What the optimizer asks of a policy. A language model and a control policy both answer."""

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

    def teacher_logps(self, rows: Sequence[Row]) -> list[Tensor]:
        """The same under the teacher; asked for only by algorithms with one."""
        ...

    def step(self, rows: Sequence[Row], objective: Objective, extras: Collection[Extra] = ()) -> Mapping[str, float]:
        """One update on the sum of the objective over all rows, which sees `extras` too; its metrics."""
        ...

    def total(self, local: Tensor) -> Tensor:
        """Sum of a tensor over all processes."""
        ...


class Critic(Protocol):
    """A value function: a policy-body head, a network of its own, an adapter; the optimizer does not know which."""

    def values(self, rows: Sequence[Row]) -> list[Tensor]:
        """Value (n,) of the history before every token, without gradient; 0 where the mask is False."""
        ...

    def step(self, rows: Sequence[Row], objective: Objective) -> Mapping[str, float]:
        """One update on the sum of the objective over all rows; its metrics."""
        ...


def refuse_stale(algorithm: Algorithm, updates: int) -> None:
    """Refuse several updates a batch without a ratio.

    Raises:
        ConfigError: from the second update on the gradient would be wrong.
    """
    if updates > 1 and algorithm.ratio == "none" and algorithm.pairs is None and algorithm.select is None:
        raise ConfigError(
            f"updates is {updates}, but algorithm {algorithm.name!r} has no importance ratio: from the second update "
            "on its gradient would be wrong. Set updates to 1, or algorithm.ratio to 'token'."
        )


TeacherPrompt = Callable[[Rollout], tuple[int, ...]]  # the prompt of a rollout as the teacher sees it


@dataclass
class PolicyOptimizer:
    """Scored rollouts -> credit -> rows -> loss -> update.

    Args:
        policy: anything that answers the verbs of `Policy`.
        reward: where scores come from.
        algorithm: the parts to combine.
        updates: passes over each batch of rollouts; an update each, over all of it, or one for each of its parts.
        critic: values, where the algorithm needs them.
        teacher_prompt: what a privileged teacher is shown in place of a rollout's prompt.
        minibatches: the parts that a pass goes through.
        state: what credit remembers from step to step.
    """

    policy: Policy
    reward: Scorer
    algorithm: Algorithm
    updates: int = 1
    critic: Critic | None = None
    teacher_prompt: TeacherPrompt | None = None
    minibatches: Minibatches = field(default_factory=Minibatches)
    state: CreditState = field(init=False)
    probe: Probe | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        algorithm = self.algorithm
        self.state = CreditState(kl_coef=algorithm.kl.coef)
        refuse_stale(algorithm, self.updates * self.minibatches.count)
        self.minibatches.check(algorithm)
        if "values" in algorithm.needs and self.critic is None:
            raise ConfigError(
                f"algorithm {algorithm.name!r} needs a critic and none was given. Make one with "
                "prefrl.model.critic.make_critic, or set credit.baseline to 'group_mean'."
            )
        if algorithm.distill.shows_solution and self.teacher_prompt is None:
            raise ConfigError(
                f"algorithm {algorithm.name!r} shows its teacher a solution, and nothing says where that stands. "
                "Name its column, teacher.solution, or set distill.privileged to false."
            )

    def state_dict(self) -> dict[str, Any]:
        """What is remembered from step to step, for an exact continuation; policy, critic and reward have their own."""
        kept = {"kl_coef": self.state.kl_coef, "means": list(self.state.means), "steps": self.state.steps}
        return {"credit": kept, "probe": None if self.probe is None else self.probe.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        kept, probe = state["credit"], state["probe"]
        first, second = kept["means"]
        self.state = CreditState(kl_coef=kept["kl_coef"], means=(first, second), steps=kept["steps"])
        self.probe = None if probe is None else Probe.from_state(probe)

    def step(self, prompts: Sequence[Prompt], *, seed: int, more: More | None = None) -> StepResult:
        """Sample a group per prompt, score, and update the policy once (or `updates` times).

        Args:
            more: gives further prompts, for algorithms that replace groups without a signal.

        Raises:
            RewardError: no rollout could be scored, or a score is not finite.
        """
        size = self.algorithm.group_size

        def sample(some: Sequence[Prompt], round_: int) -> list[Rollout]:
            drawn = self.policy.sample(some, size, seed=seed + round_ * ROUND_SEEDS)
            return [replace(r, group=f"{r.group}/{round_}") for r in drawn] if round_ else drawn

        rounds, overlong = self.algorithm.resample, self.algorithm.overlong
        found = gather(sample, self.reward, prompts, rounds=rounds, more=more, overlong=overlong)
        metrics = self.learn(found.rollouts, found.scores) | found.metrics
        metrics |= self.reward.update(found.rollouts, found.scores)
        return StepResult(metrics=metrics, rollouts=found.rollouts, scores=found.scores, version=self.policy.version)

    def learn(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
        """Update the policy on rollouts that were sampled and scored elsewhere; metrics."""
        _refuse_nonfinite(rollouts, scores)
        scored = countable(rollouts, scores, self.algorithm.overlong, self.policy.budget)
        metrics = rollout_metrics(rollouts, scores) | staleness(rollouts, self.policy.version)
        if not float(self.policy.total(torch.tensor([float(len(scored))]))):  # another process may have some
            raise RewardError(
                f"None of {len(rollouts)} rollouts can be learnt from: each was unscored, empty or masked as overlong. "
                "Raise sampling.max_new_tokens, or set algorithm.overlong.rule to 'keep'."
            )
        scored = self._judged(scored)
        kl = 0.0
        if "reference" in self.algorithm.needs:
            kl = metrics["kl/ref"] = sequence_kl(scored, self.policy.total)
        if "teacher" in self.algorithm.needs and "teacher_kl" not in self.algorithm.extras:
            metrics["kl/teacher"] = sampled_teacher_kl(scored, self.policy.total)
        if self.algorithm.kl.target:
            metrics["kl/coef"] = self.state.kl_coef
        if "values" in self.algorithm.needs:
            metrics |= self._learn_with_critic(scored)
        else:
            metrics |= self._update(self._rows(scored))
        self.state = self.state.after(self.algorithm, scored, kl, self.policy.total)
        return with_sample_size(metrics)

    def _rows(self, scored: list[Scored], given: Credit | None = None) -> list[Row]:
        algorithm, budget, total_of = self.algorithm, self.policy.budget, self.policy.total
        if algorithm.pairs is not None:
            rows_of = paired_rows if algorithm.pairs.paired else judged_rows
            return rows_of(scored, algorithm.pairs.label_smoothing, total_of)
        if algorithm.select is not None:
            return selected_rows(scored, algorithm, algorithm.select, budget, total_of)
        rows = weighted_rows(scored, algorithm, budget, total_of, state=self.state, given=given)
        return self._with_teacher_prompts(rows, scored) if "teacher_kl" in algorithm.extras else rows

    def _update(self, rows: list[Row]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if self.algorithm.select is not None:
            metrics["select/kept"] = float(len(rows))
        if not float(self.policy.total(torch.tensor([float(len(rows))]))):
            return metrics  # nothing accepted and no pair that differs: no update, in no process
        if self.algorithm.pairs is not None:
            for _ in range(self.updates):
                metrics |= learn_pairs(self.policy, rows, self.algorithm.pairs)
            return metrics
        objective = objective_of(self.algorithm)
        for part in self._parts(rows):
            metrics |= self.policy.step(part, objective, self.algorithm.extras)
        return metrics

    def _parts(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """What each update of this step is made on."""
        for update in range(self.updates):
            yield from self.minibatches.of(rows, seed=self.state.steps * self.updates + update)

    def _learn_with_critic(self, scored: list[Scored]) -> dict[str, float]:
        assert self.critic is not None, "checked when the optimizer was made"
        given = credit(scored, self.algorithm, self.state, self.policy.total)
        rows = value_rows(scored, given, self.algorithm, self.policy.total)
        old, returns = (
            torch.cat([torch.zeros(0), *(row.streams[name][torch.tensor(row.mask)] for row in rows)])
            for name in ("old_values", "returns")
        )
        metrics = {
            "critic/explained_variance": explained_variance(old, returns, self.policy.total),
            "critic/return": moments(returns, self.policy.total)[0],
        }
        metrics["critic/explained_variance/plain"] = plain_explained_variance(
            scored, self.algorithm, self.state, self.policy.total
        )
        metrics["critic/drift"] = 0.0 if self.probe is None else self.probe.drift(self.critic, self.policy.total)
        self.probe = self.probe or Probe.of(scored, self.algorithm)
        spec = self.algorithm.critic
        for part in self._parts(rows):
            learnt = self.critic.step(part, lambda batch: critic_objective(batch, spec))
            metrics |= {f"critic/{name}": value for name, value in learnt.items()}
        warming = self.state.steps < self.algorithm.critic.warmup
        return metrics if warming else metrics | self._update(self._rows(scored, given))

    def _judged(self, scored: list[Scored]) -> list[Scored]:
        """The rollouts with what the algorithm needs: values, and log-probs under reference, learner and teacher."""
        algorithm, rows = self.algorithm, [bare_row(s, s.rollout.mask, {}) for s in scored]
        if "reference" in algorithm.needs:
            found = self.policy.logps(rows, "reference")
            scored = [replace(s, ref_logps=x) for s, x in zip(scored, found, strict=True)]
        if "learner" in algorithm.needs:
            found = self.policy.logps(rows, "policy")
            scored = [replace(s, learner_logps=x) for s, x in zip(scored, found, strict=True)]
        if "teacher" in algorithm.needs and algorithm.distill.form == "sampled":
            found = self.policy.teacher_logps(self._with_teacher_prompts(rows, scored))
            scored = [replace(s, teacher_logps=x) for s, x in zip(scored, found, strict=True)]
        if "values" in algorithm.needs:
            assert self.critic is not None, "checked when the optimizer was made"
            found = self.critic.values(history_rows(scored, algorithm))
            scored = [
                replace(s, values=x[: len(s.rollout.mask)], bootstrap=float(x[-1]) if s.awaits else 0.0)
                for s, x in zip(scored, found, strict=True)
            ]
        return scored

    def _with_teacher_prompts(self, rows: list[Row], scored: Sequence[Scored]) -> list[Row]:
        if self.algorithm.distill.shows_solution and self.teacher_prompt is not None:
            for row, item in zip(rows, scored, strict=True):
                row.teacher_prompt_ids = self.teacher_prompt(item.rollout)
        return rows


def learn_pairs(policy: Policy, rows: Sequence[Row], spec: PairSpec) -> dict[str, float]:
    """One update on rows with side +1 / -1, their weights summing to 1 over all pairs (or single completions).

    Args:
        policy: what learns.
        rows: both sides of pairs, or completions judged singly; with `ref_logps` where scores need a reference.
        spec: the loss.
    """
    if not float(policy.total(torch.tensor([float(len(rows))]))):
        raise DataError("No pairs to learn from; expected at least one chosen and one rejected completion.")
    prepared, baseline = prepare_pairs(policy, rows, spec)
    metrics = policy.step(prepared, lambda batch: pair_objective(batch, spec, baseline), ())
    return dict(metrics) | ({} if spec.paired else {"kl/mismatched": baseline})


def prepare_pairs(policy: Policy, rows: Sequence[Row], spec: PairSpec) -> tuple[Sequence[Row], float]:
    """What `pair_objective` needs beside the batch, over *all* rows of an update: those with `ce`, and the baseline.

    The baseline z0 of completions judged singly is KL(policy || reference) in nats per answer, estimated on
    completions of other prompts and at least 0; it is 0 where a process has no two prompts to exchange.
    """
    if spec.sft:
        rows = with_imitation(rows, spec.sft, policy.total)
    if spec.paired:
        return rows, 0.0
    swapped = mismatched_rows(rows)
    live, reference = policy.logps(swapped, "policy"), policy.logps(swapped, "reference")
    gap = sum(float((p - q)[torch.tensor(row.mask)].sum()) for row, p, q in zip(swapped, live, reference, strict=True))
    total, count = policy.total(torch.tensor([gap, float(len(swapped))], dtype=torch.float64)).tolist()
    return rows, max(0.0, total / max(1.0, count))


def learn_completions(policy: Policy, rows: Sequence[Row]) -> dict[str, float]:
    """One supervised update: mean negative log-likelihood over all scored tokens of the rows."""
    count = float(policy.total(torch.tensor([float(sum(sum(r.mask) for r in rows))])))
    if not count:
        raise DataError("No completion tokens to learn from; every completion is empty.")
    for row in rows:
        row.streams["ce"] = torch.full((len(row.mask),), 1.0 / count)
    return dict(policy.step(rows, supervised_objective))


def _refuse_nonfinite(rollouts: Sequence[Rollout], scores: Sequence[Score]) -> None:
    for rollout, score in zip(rollouts, scores, strict=True):
        if score.ok and not math.isfinite(score.total):
            raise RewardError(
                f"The score of prompt {rollout.prompt.id!r} is {score.total}; expected a finite number. "
                "Return Score.failed(reason) for what cannot be scored."
            )
