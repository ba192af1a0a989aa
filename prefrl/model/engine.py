"""The engine: sample, logps, step, publish, save. It knows how to train; it does not know what or why.

One implementation on `accelerate.Accelerator` serves a CPU, one GPU and several processes. As every loss is a
sum over global denominators, gradients of processes are added, and no split of the rows can change a step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from prefrl.config import ModelConfig, SamplingConfig, Schedule
from prefrl.errors import PrefrlError, RunError
from prefrl.model.batching import distinct_rows, pack, row_columns, row_outputs
from prefrl.model.teacher import Teacher
from prefrl.rollout.sampler import Sampler
from prefrl.types import WEIGHTS, Batch, Extra, Objective, Prompt, Rollout, Row, Sums


class Trainable(Protocol):
    """What is trained: a language model, a control policy, a reward model."""

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        ...

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        ...

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """The module's output at every masked-in token, laid end to end (N,), with gradient."""
        ...

    def save(self, folder: str | Path) -> None:
        """Write the weights."""
        ...


@runtime_checkable
class HasStatistics(Protocol):
    """A policy, which can say more of a token than its log-prob."""

    def token_statistics(
        self, rows: Sequence[Row], temperature: float, extras: Collection[Extra], teacher: Teacher | None = None
    ) -> dict[str, Tensor]:
        """`logps`, as `token_outputs` has them, and every extra of the same tokens, each (N,) with gradient."""
        ...


@runtime_checkable
class HasFreshHead(Protocol):
    """A model with parameters that start from nothing and must move faster than the pretrained ones."""

    head_lr_factor: float

    @property
    def head_parameters(self) -> Sequence[nn.Parameter]:
        """The parameters that learn at `head_lr_factor` times the learning rate."""
        ...


class Engine:
    """Trains one actor. Its reference is the actor's live weights, and saved buffers, as the engine is made.

    Args:
        actor: what is trained.
        optim: how.
        sampler: who writes completions; None when nothing is sampled.
        sampling: how completions are drawn; log-probs are taken at its temperature.
        budget: most sampled tokens of a rollout, where that is more than one completion's.
        total_steps: updates of the whole run, for the learning-rate schedule.
        reference: keep a copy of the trained weights as they are now, and of what moves beside them, such as a running
            normaliser.
        teacher: another policy to stay near to, token by token.
    """

    def __init__(
        self,
        actor: Trainable,
        optim: ModelConfig,
        *,
        sampler: Sampler | None = None,
        sampling: SamplingConfig | None = None,
        budget: int = 0,
        total_steps: int = 1,
        reference: bool = False,
        teacher: Teacher | None = None,
    ) -> None:
        self.actor = actor
        self.sampler = sampler
        self.optim = optim
        self.teacher = teacher
        self.sampling = sampling or SamplingConfig()
        self.budget = budget or self.sampling.max_new_tokens
        self.accelerator = _accelerator()
        self.version = 0
        self._trained = [p for p in actor.module.parameters() if p.requires_grad]
        if not self._trained:
            raise PrefrlError("The policy has no trainable parameter; load it with lora, top_layers or neither.")
        self._moving = _saved_buffers(actor.module) if reference else []
        self._reference = self.snapshot() if reference else None
        self._reference_moving = [b.detach().clone() for b in self._moving]
        self._optimizer = torch.optim.AdamW(
            _parameter_groups(actor, self._trained), lr=optim.lr, weight_decay=optim.weight_decay
        )
        self._total_steps = total_steps

    @property
    def has_reference(self) -> bool:
        """Whether the weights at the moment the engine was made are kept."""
        return self._reference is not None

    @property
    def _temperature(self) -> float:
        return self.sampling.temperature or 1.0

    def sample(self, prompts: Sequence[Prompt], n: int, *, seed: int) -> list[Rollout]:
        """Draw `n` rollouts of every prompt with the current weights."""
        if self.sampler is None:
            raise PrefrlError("This engine has no sampler; make it with sampler=policy.")
        return self.sampler.sample(prompts, n, self.sampling, seed=seed, version=self.version)

    def outputs(self, rows: Sequence[Row]) -> list[Tensor]:
        """The actor's outputs (n,) for every row without gradient, in the order given; 0 where the mask is False.

        They are log-probs of a policy, values of a critic.
        """
        return row_outputs(
            rows,
            lambda distinct: self.actor.token_outputs(distinct, self._temperature),
            self.optim.token_budget,
            shared=self.actor.shares_prompts,
        )

    def logps(self, rows: Sequence[Row], who: Literal["policy", "reference"] = "policy") -> list[Tensor]:
        """`outputs` of a policy as it is, or as it was when the engine was made."""
        with self._weights(who):
            return self.outputs(rows)

    def teacher_logps(self, rows: Sequence[Row]) -> list[Tensor]:
        """The teacher's log-probs (n,) of every row's tokens, in the order given; 0 where the mask is False."""
        return self._kept_teacher().logps(rows, self.optim.token_budget, self._temperature)

    def step(self, rows: Sequence[Row], objective: Objective, extras: Collection[Extra] = ()) -> dict[str, float]:
        """One update on the sum of `objective` over all rows. Rows whose weights are all 0 are not computed.

        Args:
            rows: training sequences with the streams that the objective reads.
            objective: the loss of a micro-batch.
            extras: what the objective reads of `Batch.extras`; nothing else is computed.

        Raises:
            PrefrlError: an extra was asked for that needs a teacher, or a policy, and there is none.
            RunError: the loss or the gradient is not finite; the weights are left as they were.
        """
        counting = [row for row in rows if _counts(row)]
        sums: Sums = {}
        self._optimizer.zero_grad()  # nothing of a step that failed half-way
        loss_sum = torch.zeros((), dtype=torch.float64)
        for micro in pack(counting, self.optim.token_budget, shared=self.actor.shares_prompts):
            loss, metrics = objective(self._batch(micro, extras))
            loss.backward()
            loss_sum += loss.detach().cpu().double()
            _accumulate(sums, metrics)
        norm = self._reduce_and_clip()
        everywhere, moved = self.total(torch.stack([loss_sum, torch.tensor(float(len(counting))).double()])).tolist()
        if not math.isfinite(everywhere) or not math.isfinite(norm):
            self._optimizer.zero_grad()
            raise RunError(
                f"Update {self.version + 1}: the loss is {everywhere:g} and the gradient norm {norm:g}; "
                "expected finite numbers. The weights are unchanged. Lower the learning rate (lr), or raise warmup."
            )
        factor = schedule_factor(self.version, self._total_steps, self.optim.warmup, self.optim.schedule)
        lr = self.optim.lr * factor
        for group in self._optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        if moved:  # without a row that counts nothing moves: not by momentum either, nor in some processes only
            self._optimizer.step()
        self._optimizer.zero_grad()
        self.publish()
        return {"loss": float(loss_sum), "grad_norm": norm, "lr": lr, **_read(sums)}

    def snapshot(self) -> list[Tensor]:
        """A copy of the trained weights."""
        return [p.detach().clone() for p in self._trained]

    @torch.no_grad()
    def restore(self, weights: Sequence[Tensor]) -> None:
        """Put weights of `snapshot` back."""
        for parameter, saved in zip(self._trained, weights, strict=True):
            parameter.copy_(saved)

    def reset(self) -> None:
        """Put the reference weights back: the actor is again what it was when the engine was made."""
        self.restore(self._kept_reference())
        with torch.no_grad():
            for buffer, start in zip(self._moving, self._reference_moving, strict=True):
                buffer.copy_(start)

    def state_dict(self) -> dict[str, Any]:
        """All that an exact continuation needs: trained weights, reference, optimizer and version.

        Buffers and weights that are not trained are the actor's own affair.
        """
        return {
            "version": self.version,
            "trained": self.snapshot(),
            "reference": list(self._reference or ()),
            "reference_moving": list(self._reference_moving),
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned for an engine made alike."""
        self.restore(state["trained"])
        if self._reference is not None:
            pairs = zip(state["reference"], self._trained, strict=True)
            self._reference = [saved.to(live.device) for saved, live in pairs]
            moving = zip(state.get("reference_moving", self._reference_moving), self._moving, strict=True)
            self._reference_moving = [saved.to(live.device) for saved, live in moving]
        self._optimizer.load_state_dict(state["optimizer"])
        self.version = int(state["version"])

    def publish(self) -> int:
        """Make the new weights those that sample; in one process they already are. The new version."""
        self.version += 1
        return self.version

    def total(self, local: Tensor) -> Tensor:
        """Sum of a tensor over all processes."""
        if self.accelerator.num_processes == 1:
            return local
        summed: Tensor = self.accelerator.reduce(local.to(self.accelerator.device), "sum")
        return summed.cpu()

    def save(self, folder: str | Path) -> None:
        """Write the actor's weights; only the main process does."""
        if self.accelerator.is_main_process:
            self.actor.save(folder)

    def _kept_reference(self) -> list[Tensor]:
        if self._reference is None:
            raise PrefrlError("This engine keeps no reference; make it with reference=True.")
        return self._reference

    def _kept_teacher(self) -> Teacher:
        if self.teacher is None:
            raise PrefrlError("This engine has no teacher; make it with teacher=Teacher.other(...) or its like.")
        return self.teacher

    def _batch(self, micro: Sequence[Row], extras: Collection[Extra]) -> Batch:
        found = self._statistics(micro, extras)
        outputs = found.pop("logps")
        device = outputs.device
        masks = [torch.tensor(row.mask) for row in micro]
        counts = torch.tensor([int(mask.sum()) for mask in masks])
        names = set(micro[0].streams)
        assert all(set(row.streams) == names for row in micro), "all rows of a step have the same streams"
        return Batch(
            outputs=outputs,
            row=torch.arange(len(micro)).repeat_interleave(counts).to(device),
            streams={
                name: torch.cat([row.streams[name][mask] for row, mask in zip(micro, masks, strict=True)]).to(device)
                for name in names
            },
            extras=found,
            **row_columns(micro, device=device),
        )

    def _statistics(self, micro: Sequence[Row], extras: Collection[Extra]) -> dict[str, Tensor]:
        """The actor's outputs, as `logps`, and the extras for all rows, equal rows computed once."""
        distinct, index = distinct_rows(micro)
        if not extras:
            found = {"logps": self.actor.token_outputs(distinct, self._temperature)}
        elif isinstance(self.actor, HasStatistics):
            teacher = self._kept_teacher() if "teacher_kl" in extras else None
            found = self.actor.token_statistics(distinct, self._temperature, extras, teacher)
        else:
            raise PrefrlError(f"{type(self.actor).__name__} has no {' or '.join(extras)}; expected a policy.")
        if len(distinct) == len(micro):
            return found
        counts = [sum(row.mask) for row in distinct]
        parts = {name: flat.split(counts) for name, flat in found.items()}
        return {name: torch.cat([pieces[i] for i in index]) for name, pieces in parts.items()}

    def _reduce_and_clip(self) -> float:
        if self.accelerator.num_processes > 1:
            for parameter in self._trained:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = self.total(grad).to(parameter.device)
        limit = self.optim.max_grad_norm or math.inf
        return float(torch.nn.utils.clip_grad_norm_(self._trained, limit))

    @contextlib.contextmanager
    def _weights(self, who: Literal["policy", "reference"]) -> Iterator[None]:
        """Let the reference weights stand in for the live ones."""
        if who == "policy":
            yield
            return
        starts = [*self._kept_reference(), *self._reference_moving]
        tensors = [*self._trained, *self._moving]
        live = [tensor.data for tensor in tensors]
        try:
            for tensor, start in zip(tensors, starts, strict=True):
                tensor.data = start
            yield
        finally:
            for tensor, data in zip(tensors, live, strict=True):
                tensor.data = data


def _saved_buffers(module: nn.Module) -> list[Tensor]:
    """What a module saves beside its parameters: it may move, which tables of positions, that are not saved, do not."""
    saved = module.state_dict()
    return [buffer for name, buffer in module.named_buffers() if name in saved]


def _accelerator() -> Any:
    """The process's place among others. One serves all engines: accelerate refuses a second on another device.

    A trainer of transformers or TRL in the same process resets accelerate; then it is made anew.
    """
    from accelerate.state import is_initialized

    if not is_initialized():
        _made_accelerator.cache_clear()
    return _made_accelerator()


@cache
def _made_accelerator() -> Any:
    from accelerate import Accelerator

    return Accelerator(cpu=not torch.cuda.is_available())


def _parameter_groups(actor: Trainable, trained: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """Parameters by how many times the learning rate they learn at."""
    head = {id(p) for p in actor.head_parameters} if isinstance(actor, HasFreshHead) else set()
    groups = [{"params": [p for p in trained if id(p) not in head], "factor": 1.0}]
    if isinstance(actor, HasFreshHead):
        groups.append({"params": [p for p in trained if id(p) in head], "factor": actor.head_lr_factor})
    return [group for group in groups if group["params"]]


def schedule_factor(step: int, total: int, warmup: int, schedule: Schedule) -> float:
    """Share of the peak learning rate at update `step` (0-based) of `total`."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    if schedule == "linear":
        return 1.0 - progress
    return 0.5 * (1.0 + math.cos(math.pi * progress)) if schedule == "cosine" else 1.0


def _counts(row: Row) -> bool:
    """False for rows that cannot move the policy: they are not computed, and the metrics of the loss leave them out."""
    weights = [row.streams[name] for name in WEIGHTS if name in row.streams]
    return row.together or any(bool((w != 0).any()) for w in weights)


def _accumulate(sums: Sums, new: Sums) -> None:
    for name, (value, count) in new.items():
        if name not in sums:
            sums[name] = (value, count)
        elif name.endswith("/max"):
            sums[name] = (torch.maximum(sums[name][0], value), count)
        elif name.endswith("/min"):
            sums[name] = (torch.minimum(sums[name][0], value), count)
        else:
            sums[name] = (sums[name][0] + value, sums[name][1] + count)


def _read(sums: Sums) -> dict[str, float]:
    return {
        name: float(value) if name.endswith(("/max", "/min")) else float(value) / (float(count) or 1.0)
        for name, (value, count) in sums.items()
    }
