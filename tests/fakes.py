"""A policy and a critic of a few numbers, and batches laid by hand: what the optimizer needs, without a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from tiny import rollout
from torch import Tensor

from prefrl.model.batching import row_columns
from prefrl.policy.algorithms import resolve
from prefrl.policy.credit import Scored
from prefrl.policy.parts import Algorithm
from prefrl.types import Batch, Objective, Prompt, Rollout, Row, Score, Sums


def alone(local: Tensor) -> Tensor:
    """The total over all processes when there is one."""
    return local


def scored(
    value: float | None,
    ids: tuple[int, ...] = (1,),
    *,
    steps: tuple[tuple[int, float], ...] = (),
    turns: tuple[tuple[int, int], ...] = (),
    ref: Sequence[float] | None = None,
    learner: Sequence[float] | None = None,
    teacher: Sequence[float] | None = None,
    values: Sequence[float] | None = None,
    bootstrap: float = 0.0,
    **rollout_options: Any,
) -> Scored:
    """A rollout that counts, its score and what else was found out about it."""
    mask = rollout_options.get("mask") or (True,) * len(ids)
    options = {"logps": tuple(-1.0 if sampled else 0.0 for sampled in mask), **rollout_options}
    found = (None if x is None else torch.tensor(x) for x in (ref, learner, teacher, values))
    episode = dataclasses.replace(rollout(ids, **options), turns=turns)
    return Scored(episode, Score(value=value, steps=steps), *found, bootstrap=bootstrap)


def parts(name: str = "grpo", **changes: Any) -> Algorithm:
    """A row of the table with groups of two, and parts changed."""
    return resolve({"name": name, "group_size": 2, **changes})


def batch_of(rows: Sequence[Row], outputs: Tensor, extras: Mapping[str, Tensor] | None = None) -> Batch:
    """Rows laid end to end as an engine lays them, with given `outputs` (N,) at their masked-in tokens."""
    masks = [torch.tensor(row.mask) for row in rows]
    names = set.intersection(*(set(row.streams) for row in rows))
    return Batch(
        outputs=outputs,
        row=torch.arange(len(rows)).repeat_interleave(torch.tensor([int(mask.sum()) for mask in masks])),
        streams={n: torch.cat([r.streams[n][m] for r, m in zip(rows, masks, strict=True)]) for n in names},
        extras=extras or {},
        **row_columns(rows, dtype=outputs.dtype),
    )


def read(sums: Sums) -> dict[str, float]:
    """Metrics of one batch: sums over counts, maxima and minima as they are."""
    whole = ("/max", "/min")
    return {n: float(v) / (1.0 if n.endswith(whole) else float(c) or 1.0) for n, (v, c) in sums.items()}


class TablePolicy:
    """softmax(logits) at every token, whatever came before; rollout k of a prompt is `answer(prompt, k)`.

    calls  what it was asked, in order; a critic may share the list
    seeds  of every sampling
    asked  the rows that the teacher was shown
    rows   the rows of every update
    """

    def __init__(
        self,
        logits: Sequence[float] = (0.0, 0.0),
        *,
        answer: Callable[[Prompt, int], tuple[int, ...]] = lambda prompt, k: (k % 2,),
        teacher: Sequence[float] | None = None,
        budget: int = 4,
        lr: float = 1.0,
    ) -> None:
        self.logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        self.start = self.logits.detach().clone()
        self.teacher = self.start if teacher is None else torch.tensor(teacher, dtype=torch.float64)
        self.answer, self.budget, self.lr = answer, budget, lr
        self.version = 0
        self.calls: list[str] = []
        self.seeds: list[int] = []
        self.asked: list[Sequence[Row]] = []
        self.rows: list[Sequence[Row]] = []

    def sample(self, prompts: Sequence[Prompt], n: int, *, seed: int) -> list[Rollout]:
        self.calls.append("sample")
        self.seeds.append(seed)
        drawn = []
        for prompt in prompts:
            for k in range(n):
                ids = self.answer(prompt, k)
                logps = tuple(self.logits.detach().log_softmax(0)[list(ids)].tolist())
                drawn.append(dataclasses.replace(rollout(ids, group=prompt.id, logps=logps), version=self.version))
        return drawn

    def logps(self, rows: Sequence[Row], who: str) -> list[Tensor]:
        self.calls.append(who)
        return self._each(rows, self.start if who == "reference" else self.logits.detach())

    def teacher_logps(self, rows: Sequence[Row]) -> list[Tensor]:
        self.calls.append("teacher")
        self.asked.append(rows)
        return self._each(rows, self.teacher)

    def step(self, rows: Sequence[Row], objective: Objective, extras: Collection[str] = ()) -> dict[str, float]:
        self.calls.append("policy")
        self.rows.append(rows)
        logps = self.logits.log_softmax(0)
        outputs = torch.cat([logps[_ids(row)][torch.tensor(row.mask)] for row in rows])
        whole = {"entropy": -(logps.exp() * logps).sum()}
        whole["teacher_kl"] = (logps.exp() * (logps - self.teacher.log_softmax(0))).sum()
        loss, sums = objective(batch_of(rows, outputs, {name: whole[name].expand(len(outputs)) for name in extras}))
        (gradient,) = torch.autograd.grad(loss, self.logits)
        with torch.no_grad():
            self.logits -= self.lr * gradient
        self.version += 1
        return {"loss": float(loss.detach()), "grad_norm": float(gradient.norm()), **read(sums)}

    def total(self, local: Tensor) -> Tensor:
        return local

    def _each(self, rows: Sequence[Row], logits: Tensor) -> list[Tensor]:
        return [torch.where(torch.tensor(row.mask), logits.log_softmax(0)[_ids(row)], 0.0) for row in rows]


class TableCritic:
    """Values by position in a completion, learnt by plain gradient descent.

    calls  what it was asked, in order
    rows   the rows of every update; `asked` those of every reading
    """

    def __init__(self, values: Sequence[float], *, lr: float = 0.0, calls: list[str] | None = None) -> None:
        self.table = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        self.lr = lr
        self.calls = [] if calls is None else calls
        self.asked: list[Sequence[Row]] = []
        self.rows: list[Sequence[Row]] = []

    def values(self, rows: Sequence[Row]) -> list[Tensor]:
        self.calls.append("values")
        self.asked.append(rows)
        table = self.table.detach().float()
        return [torch.where(torch.tensor(row.mask), table[: len(row.mask)], 0.0) for row in rows]

    def step(self, rows: Sequence[Row], objective: Objective) -> dict[str, float]:
        self.calls.append("critic")
        self.rows.append(rows)
        outputs = torch.cat([self.table[: len(row.mask)][torch.tensor(row.mask)] for row in rows])
        loss, sums = objective(batch_of(rows, outputs))
        (gradient,) = torch.autograd.grad(loss, self.table)
        with torch.no_grad():
            self.table -= self.lr * gradient
        return {"loss": float(loss.detach()), **read(sums)}


class TableReward:
    """Scores by the completion's ids; `learnt` counts updates."""

    def __init__(self, score: Callable[[Rollout], Score]) -> None:
        self._score = score
        self.learnt = 0

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._score(r) for r in rollouts]

    def update(self, rollouts: Sequence[Rollout], scores: Sequence[Score]) -> dict[str, float]:
        self.learnt += 1
        return {"source/updates": float(self.learnt)}


def _ids(row: Row) -> Tensor:
    return torch.tensor(row.completion_ids)
