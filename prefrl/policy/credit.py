"""From scored rollouts to advantages and returns, as the algorithm's parts say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prefrl.policy.advantages import (
    TotalOf,
    centred,
    decisions,
    gae,
    per_decision,
    rewards_to_go,
    scaled,
    to_tokens,
    uniform,
    whitened,
)
from prefrl.policy.losses import kl_estimate
from prefrl.policy.parts import Algorithm, OverlongSpec
from prefrl.types import Rollout, Score

# Share of the old running mean that is kept each step.
EMA_DECAY = 0.9
# How strongly the KL coefficient follows the measured KL, and how far an error counts (arXiv 1909.08593, section 2.2).
KL_GAIN, KL_ERROR_LIMIT = 0.1, 0.2


@dataclass(frozen=True, slots=True)
class Scored:
    """A rollout that counts: scored, with at least one sampled token, and not masked as overlong.

    ref_logps, learner_logps, teacher_logps  (n,) log-probs under the reference, under the learner before the update
                                             and under the teacher, where the algorithm needs them
    values, bootstrap                        (n,) values of the history before each decision's first token, and the
                                             value after the last token of a rollout that was cut off
    """

    rollout: Rollout
    score: Score
    ref_logps: Tensor | None = None
    learner_logps: Tensor | None = None
    teacher_logps: Tensor | None = None
    values: Tensor | None = None
    bootstrap: float = 0.0

    @property
    def awaits(self) -> bool:
        """Whether more reward was to come: cut off, and paid by steps alone; a sequence-level score is a last word."""
        return self.rollout.truncated and self.score.value is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditState:
    """What credit remembers from step to step.

    kl_coef  the KL coefficient in use
    means    running means of sequence-level and of step-level rewards; NaN before the first one of its kind
    steps    optimizer steps so far
    """

    kl_coef: float
    means: tuple[float, float] = (math.nan, math.nan)
    steps: int = 0

    def after(self, algorithm: Algorithm, scored: Sequence[Scored], kl: float, total_of: TotalOf) -> CreditState:
        """The state for the next step, given this step's rollouts and KL to the reference in nats an answer."""
        finals = [reward for _, _, reward in _finals(scored, self.kl_coef if algorithm.kl.place == "reward" else 0.0)]
        steps = [reward for s in scored for _, reward in s.score.steps]
        means = tuple(_running_mean(m, r, total_of) for m, r in zip(self.means, (finals, steps), strict=True))
        coef = self.kl_coef
        if algorithm.kl.target:
            error = min(max(kl / algorithm.kl.target - 1.0, -KL_ERROR_LIMIT), KL_ERROR_LIMIT)
            coef *= 1.0 + KL_GAIN * error
        return CreditState(kl_coef=coef, means=(means[0], means[1]), steps=self.steps + 1)


def _running_mean(old: float, rewards: Sequence[float], total_of: TotalOf) -> float:
    total, count = total_of(torch.tensor([sum(rewards), len(rewards)], dtype=torch.float64)).tolist()
    if not count:
        return old
    return total / count if math.isnan(old) else EMA_DECAY * old + (1.0 - EMA_DECAY) * total / count


@dataclass(frozen=True, slots=True)
class Credit:
    """(n,) advantages of every rollout and, with a critic, (n,) returns; read at sampled tokens only."""

    advantages: list[Tensor]
    returns: list[Tensor] | None = None


def countable(
    rollouts: Sequence[Rollout], scores: Sequence[Score], overlong: OverlongSpec, budget: int
) -> list[Scored]:
    """The rollouts that enter baseline, loss and means, with the scores that they count with.

    Errored ones never do, nor those without a sampled token; truncated ones as `overlong` says.
    """
    kept = [
        (rollout, score)
        for rollout, score in zip(rollouts, scores, strict=True)
        if score.ok and any(rollout.mask) and not (overlong.rule == "mask" and rollout.truncated)
    ]
    return [Scored(rollout, _shaped(rollout, score, overlong, budget)) for rollout, score in kept]


def _shaped(rollout: Rollout, score: Score, overlong: OverlongSpec, budget: int) -> Score:
    if overlong.rule == "zero" and rollout.truncated:
        return replace(score, value=0.0, steps=())
    if overlong.rule == "soft":
        penalty = overlong_penalty(sum(rollout.mask), budget, overlong)
        if score.value is None and penalty:  # paid as a step: a value would be a last word on a cut-off episode
            return replace(score, steps=(*score.steps, (rollout.last_sampled, -penalty)))
        return replace(score, value=score.value - penalty) if score.value is not None else score
    return score


def overlong_penalty(length: int, budget: int, overlong: OverlongSpec) -> float:
    """0 up to `(1 - buffer) budget` tokens, then linearly up to `penalty` at the budget (DAPO, equation 13)."""
    buffer = overlong.buffer * budget
    return overlong.penalty * min(max((length - (budget - buffer)) / buffer, 0.0), 1.0)


def group_ids(scored: Sequence[Scored]) -> Tensor:
    """Integer ids (B,) of the rollouts' groups; equal exactly for equal group names."""
    names = {name: i for i, name in enumerate(dict.fromkeys(s.rollout.group for s in scored))}
    return torch.tensor([names[s.rollout.group] for s in scored], dtype=torch.long)


def has_signal(scored: Sequence[Scored]) -> Tensor:
    """(B,) whether the rollout's group can teach by comparison: two that count, and rewards of a kind that differ."""
    groups = group_ids(scored)
    finals = [(i, s.score.value) for i, s in enumerate(scored) if s.score.value is not None]
    steps = [(i, reward) for i, s in enumerate(scored) for _, reward in s.score.steps]
    varied: set[int] = set()
    for events in (finals, steps):
        owners = groups[torch.tensor([i for i, _ in events], dtype=torch.long)]
        flat = uniform(torch.tensor([r for _, r in events], dtype=torch.float64), owners)
        varied |= set(owners[~flat].tolist())
    counts = torch.bincount(groups, minlength=1)
    return torch.tensor([g in varied and int(counts[g]) > 1 for g in groups.tolist()], dtype=torch.bool)


def decisions_of(item: Scored, algorithm: Algorithm) -> list[list[int]]:
    """Token indices of each decision of a rollout."""
    return decisions(item.rollout.mask, item.rollout.turns, algorithm.credit.level)


def credit(scored: Sequence[Scored], algorithm: Algorithm, state: CreditState, total_of: TotalOf) -> Credit:
    """Advantages (and returns) of all rollouts.

    The KL in the reward is paid where credit looks: in the sequence's score where rollouts are compared, at each
    token where their own rewards are summed. A sampled-token teacher's reward is the token's alone.
    """
    spec = algorithm.credit
    coef = state.kl_coef if algorithm.kl.place == "reward" else 0.0
    returns = None
    if spec.compares_rollouts:
        advantages = _compared(scored, algorithm, state, coef, total_of)
    elif spec.baseline == "critic":
        advantages, returns = _estimated(scored, algorithm, coef)
    else:
        own = [per_decision(_events(s, coef), decisions_of(s, algorithm)) for s in scored]
        summed = [rewards_to_go(rewards, spec.gamma) for rewards in own]
        advantages = [_spread(r, s, algorithm) for r, s in zip(summed, scored, strict=True)]
    if spec.scale == "whiten":
        advantages = whitened(advantages, [s.rollout.mask for s in scored], total_of)
    if algorithm.distill.coef and algorithm.distill.form == "sampled":
        advantages = [a - algorithm.distill.coef * teacher_gap(s) for a, s in zip(advantages, scored, strict=True)]
    return Credit(advantages, returns)


def _spread(values: Sequence[float], item: Scored, algorithm: Algorithm) -> Tensor:
    return to_tokens(values, decisions_of(item, algorithm), len(item.rollout.mask))


def _compared(
    scored: Sequence[Scored], algorithm: Algorithm, state: CreditState, coef: float, total_of: TotalOf
) -> list[Tensor]:
    """Sequence-level and step-level events are kept apart: each is compared with its like."""
    groups = group_ids(scored).tolist()
    finals = _finals(scored, coef)
    steps = [(i, token, reward) for i, s in enumerate(scored) for token, reward in s.score.steps]
    compared: list[list[tuple[int, float]]] = [[] for _ in scored]
    for events, mean in zip((finals, steps), state.means, strict=True):
        owner = torch.tensor([e[0] for e in events], dtype=torch.long)
        rewards = torch.tensor([e[2] for e in events], dtype=torch.float64)
        group = torch.tensor([groups[e[0]] for e in events], dtype=torch.long)
        spec = algorithm.credit
        advantage = centred(rewards, owner, group, spec.baseline, ema=mean, total_of=total_of)
        advantage = scaled(advantage, rewards, group, spec.scale, total_of)
        for (i, token, _), value in zip(events, advantage.tolist(), strict=True):
            compared[i].append((token, value))
    own = [per_decision(events, decisions_of(s, algorithm)) for events, s in zip(compared, scored, strict=True)]
    summed = [rewards_to_go(rewards, algorithm.credit.gamma) for rewards in own]
    return [_spread(r, s, algorithm) for r, s in zip(summed, scored, strict=True)]


def _finals(scored: Sequence[Scored], coef: float) -> list[tuple[int, int, float]]:
    """(rollout, token, reward) of every sequence-level reward, the KL of the whole rollout paid in it."""
    return [
        (i, s.rollout.last_sampled, (s.score.value or 0.0) - (coef * float(ref_gap(s).sum()) if coef else 0.0))
        for i, s in enumerate(scored)
        if coef or s.score.value is not None
    ]


def _estimated(scored: Sequence[Scored], algorithm: Algorithm, coef: float) -> tuple[list[Tensor], list[Tensor]]:
    """Generalized advantage estimates, and the returns `A + V` that the critic learns."""
    spec = algorithm.credit
    advantages, returns = [], []
    for item in scored:
        assert item.values is not None, "the baseline 'critic' needs values"
        at = decisions_of(item, algorithm)
        values = [float(item.values[tokens[0]]) for tokens in at]
        estimate = gae(per_decision(_events(item, coef), at), values, spec.gamma, spec.lam, item.bootstrap)
        advantages.append(_spread(estimate, item, algorithm))
        returns.append(_spread([a + v for a, v in zip(estimate, values, strict=True)], item, algorithm))
    return advantages, returns


def _events(item: Scored, coef: float) -> list[tuple[int, float]]:
    """All rewards of a rollout at their tokens, the KL to the reference among them at `coef` a nat."""
    events = list(item.score.steps)
    if item.score.value is not None:
        events.append((item.rollout.last_sampled, item.score.value))
    if coef:
        gaps = ref_gap(item).tolist()
        events += [(i, -coef * gap) for i, gap in enumerate(gaps)]
    return events


def ref_gap(item: Scored) -> Tensor:
    """`log pi - log ref` (n,); 0 at tokens that the policy did not sample."""
    assert item.ref_logps is not None, "the KL in the reward needs reference log-probs"
    gap = kl_estimate(_live_logps(item), item.ref_logps.double(), "k1")
    return torch.where(torch.tensor(item.rollout.mask), gap, 0.0)


def _live_logps(item: Scored) -> Tensor:
    """(n,) log-probs under the learner where they were computed, else as sampled: fresh samples have the same."""
    if item.learner_logps is not None:
        return item.learner_logps.double()
    return torch.tensor(item.rollout.logps, dtype=torch.float64)


def teacher_gap(item: Scored) -> Tensor:
    """`log pi - log q` (n,); 0 at tokens that the policy did not sample."""
    assert item.teacher_logps is not None, "distillation by sampled tokens needs the teacher's log-probs"
    gap = _live_logps(item) - item.teacher_logps.double()
    return torch.where(torch.tensor(item.rollout.mask), gap, 0.0)
