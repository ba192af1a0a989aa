"""How a reward net for text is improved, a little at a time, from demonstrations and the policy's own samples."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prefrl.errors import RewardError
from prefrl.model.batching import pack
from prefrl.rewards.inverse.discriminator import Fit
from prefrl.rewards.inverse.text_losses import (
    Judged,
    Method,
    classification_loss,
    discriminator_metrics,
    effective_shares,
    gradient_penalty,
    logits,
    partition_loss,
)
from prefrl.rewards.inverse.text_nets import Level, TextModel
from prefrl.types import Row

MAX_NORM = 10.0  # of a gradient: a bound against accidents


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A completion to learn from, and how it looked to the policy of its round.

    log_ratio  (n,) log pi - log ref of its tokens under that policy: an old round stays as good a lesson as a new
               one, for what its policy wrote more often than the reference is taken off with that policy's own numbers
    features   what a frozen body says of it; None where the body is trained
    count      how often it was demonstrated, or drawn
    """

    row: Row
    expert: bool
    terminated: bool
    log_ratio: Tensor
    features: Tensor | None = None
    count: int = 1


Group = list[Example]  # both sides of one prompt in one round


class Learner:
    """Improves a reward net on rounds of examples.

    Args:
        model: heads and body.
        method: what the net is taken for.
        fit: how much a round improves it; for `gcl` only, its `fusion` is a share of demonstrations.
        estimate: take c(x) from the samples in place of the value head; `gcl` always does.
        seed: of the choice of prompts.
    """

    def __init__(self, model: TextModel, method: Method, fit: Fit, *, estimate: bool = False, seed: int = 0):
        self.model, self.method, self.fit = model, method, fit
        self.estimate, self.seed = estimate or method == "gcl", seed
        self.rounds: deque[list[Group]] = deque(maxlen=fit.buffer)
        self.done = 0  # updates so far
        self._optimizer = torch.optim.AdamW(model.parameters, lr=fit.lr, weight_decay=fit.weight_decay)

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Up to `steps` updates on these and earlier rounds; how well the net knew the new ones before it saw them.

        Raises:
            RewardError: the loss or its gradient is not finite; the net is left as it was.
        """
        self.rounds.append(list(groups))
        first = now = self.judge(groups)
        made, loss = 0, math.nan
        while made < self.fit.steps and not self._too_good(now):
            loss = self._step(self._chosen(groups))
            made += 1
            if self._may_stop or made == self.fit.steps:
                now = self.judge(groups)
        sides = ("accuracy_expert", "accuracy_policy")
        found = {"steps": float(made), "accuracy_after": sum(now[name] for name in sides) / 2}
        return first | found | ({"loss": loss} if made else {})

    def judge(self, groups: Sequence[Group]) -> dict[str, float]:
        """Figures of the net on examples, without learning from them."""
        examples = [example for group in groups for example in group]
        with torch.no_grad():
            batch = _judged(groups, *self._outputs(examples), self.model.net.level)
            log_odds = logits(batch, self.method, estimate=self.estimate)
            rewards, count = batch.sums(batch.plain), batch.count
        found = discriminator_metrics(batch, log_odds)
        for name, side in (("return_expert", batch.expert), ("return_policy", ~batch.expert)):
            found[name] = float((count * rewards)[side].sum() / count[side].sum())
        found["gap"] = found["return_expert"] - found["return_policy"]
        if self.method != "gail":
            found["ess"] = effective_shares(batch)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next round depends on."""
        return {
            "net": self.model.net.state_dict(),
            "body": {name: p.detach() for name, p in self.model.body.trained.items()},
            "optimizer": self._optimizer.state_dict(),
            "done": self.done,
            "rounds": [[[_packed(example) for example in group] for group in groups] for groups in self.rounds],
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.model.net.load_state_dict(state["net"])
        for name, parameter in self.model.body.trained.items():
            parameter.copy_(state["body"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self.done = int(state["done"])
        self.rounds.clear()
        self.rounds.extend(
            [[_unpacked(example) for example in group] for group in groups] for groups in state["rounds"]
        )

    @property
    def _may_stop(self) -> bool:
        return self.method != "gcl" and self.fit.stop_accuracy < 1.0

    def _too_good(self, figures: Mapping[str, float]) -> bool:
        """Whether both sides are told apart so well that more of it would teach the policy nothing."""
        sides = (figures["accuracy_expert"], figures["accuracy_policy"])
        return self._may_stop and min(sides) >= self.fit.stop_accuracy

    def _chosen(self, fresh: Sequence[Group]) -> list[Group]:
        """The prompts of an update: of this round, and of earlier ones for the share `fusion`."""
        rng = random.Random(f"{self.seed}/{self.done}")
        chosen = _filled(rng.sample(list(fresh), len(fresh)), self.fit.batch_size)
        earlier = [group for groups in list(self.rounds)[:-1] for group in groups]
        share = self.fit.fusion if self.method != "gcl" else 0.0
        count = min(len(earlier), round(len(chosen) * share / (1.0 - share)))
        return [*chosen, *rng.sample(earlier, count)]

    def _step(self, groups: Sequence[Group]) -> float:
        """One update. The loss is taken on all outputs at once and sent back through micro-batches of any size."""
        examples = [example for group in groups for example in group]
        with torch.no_grad():
            outputs = self._outputs(examples)
        leaves = [flat.detach().requires_grad_(True) for flat in outputs]
        batch = _judged(groups, leaves[0], leaves[1], self.model.net.level)
        loss = self._loss(batch)
        given = torch.autograd.grad(loss, leaves, allow_unused=True)
        counts = [self.model.elements(example.row) for example in examples]
        slopes = [torch.zeros_like(o) if s is None else s for o, s in zip(leaves, given, strict=True)]
        self._optimizer.zero_grad()
        for micro in self._micros(examples):
            self._back([examples[i] for i in micro], [_taken(s, counts, micro) for s in slopes], len(examples))
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters, MAX_NORM))
        value = float(loss.detach())
        if not (math.isfinite(value) and math.isfinite(norm)):
            self._optimizer.zero_grad()
            raise RewardError(
                f"Update {self.done + 1} of the reward: the loss is {value:g} and the gradient norm {norm:g}; "
                "expected finite numbers. Lower discriminator.lr, or raise beta."
            )
        self._optimizer.step()
        self.done += 1
        return value

    def _loss(self, batch: Judged) -> Tensor:
        if self.method == "gcl":
            return partition_loss(batch, self.fit.fusion)
        log_odds = logits(batch, self.method, estimate=self.estimate)
        return classification_loss(batch, log_odds, self.fit.label_smoothing)

    def _back(self, micro: Sequence[Example], slopes: Sequence[Tensor], count: int) -> None:
        """Send the gradient by the outputs of a micro-batch, of `count` examples in all, on to the parameters."""
        penalised = self.fit.gradient_penalty > 0
        features = self._features(micro)
        if penalised:
            features = [f if f.requires_grad else f.detach().requires_grad_(True) for f in features]
        found = self.model.net(features, [example.terminated for example in micro])
        back = (found[0] * slopes[0]).sum() + (found[1] * slopes[1]).sum()
        if penalised:
            back = back + self.fit.gradient_penalty * gradient_penalty(found[0], features, count)
        back.backward()

    def _outputs(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """The net's outputs of all examples, laid end to end in their order."""
        counts = [self.model.elements(example.row) for example in examples]
        order, parts = [], []
        for micro in self._micros(examples):
            some = [examples[i] for i in micro]
            parts.append(self.model.net(self._features(some), [example.terminated for example in some]))
            order += micro
        back = sorted(range(len(order)), key=order.__getitem__)
        sizes = [counts[i] for i in order]
        plain, shaped = (_taken(torch.cat([part[k] for part in parts]), sizes, back) for k in (0, 1))
        return plain, shaped

    def _features(self, examples: Sequence[Example]) -> list[Tensor]:
        kept = [example.features for example in examples]
        if all(features is not None for features in kept):
            return [features for features in kept if features is not None]
        states = self.model.body.live_states([example.row for example in examples])
        return [self.model.net.features(s) for s in states]

    def _micros(self, examples: Sequence[Example]) -> Iterator[list[int]]:
        """Indices of examples computed together: all of them where the body has said all it has to say."""
        if all(example.features is not None for example in examples):
            yield list(range(len(examples)))
            return
        rows = [_own(example.row) for example in examples]
        place = {id(row): i for i, row in enumerate(rows)}
        for micro in pack(rows, self.model.token_budget, shared=self.model.body.shares_prompts):
            yield [place[id(row)] for row in micro]


def _taken(flat: Tensor, counts: Sequence[int], which: Sequence[int]) -> Tensor:
    """The elements of some examples of those whose elements are laid end to end."""
    if list(which) == list(range(len(counts))):
        return flat
    parts = flat.split(list(counts))
    return torch.cat([parts[i] for i in which])


def _own(row: Row) -> Row:
    """A row that is no other example's."""
    return Row(prompt_ids=row.prompt_ids, completion_ids=row.completion_ids, mask=row.mask)


def counted(examples: Sequence[Example]) -> list[Example]:
    """Equal completions of one prompt and side once, with how often they came; the first one's log-ratio stands."""
    found: dict[tuple[tuple[int, ...], bool], Example] = {}
    for example in examples:
        key = (example.row.completion_ids, example.terminated)
        known = found.get(key)
        found[key] = example if known is None else replace(known, count=known.count + example.count)
    return list(found.values())


def _filled(groups: Sequence[Group], size: int) -> list[Group]:
    """Whole prompts until both sides have `size` completions; all of them for 0."""
    chosen: list[Group] = []
    for group in groups:
        sides = [sum(e.count for g in chosen for e in g if e.expert is side) for side in (True, False)]
        if size and chosen and min(sides) >= size:
            break
        chosen.append(group)
    return chosen


def _judged(groups: Sequence[Group], plain: Tensor, shaped: Tensor, level: Level) -> Judged:
    """The outputs of all examples, in the order of the groups, as the losses see them."""
    examples = [example for group in groups for example in group]
    ratios = [example.log_ratio if level == "token" else example.log_ratio.sum()[None] for example in examples]
    row = torch.arange(len(examples)).repeat_interleave(torch.tensor([len(ratio) for ratio in ratios]))
    device = plain.device
    return Judged(
        plain=plain,
        shaped=shaped,
        ratio=torch.cat(ratios).to(device, plain.dtype),
        row=row.to(device),
        expert=torch.tensor([example.expert for example in examples], device=device),
        count=torch.tensor([example.count for example in examples], device=device),
        prompt=torch.tensor([i for i, group in enumerate(groups) for _ in group], device=device),
    )


def _packed(example: Example) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prompt": list(example.row.prompt_ids),
        "completion": list(example.row.completion_ids),
        "expert": example.expert,
        "terminated": example.terminated,
        "log_ratio": example.log_ratio,
        "count": example.count,
    }
    return found if example.features is None else found | {"features": example.features}


def _unpacked(packed: Mapping[str, Any]) -> Example:
    ids = tuple(packed["completion"])
    return Example(
        row=Row(prompt_ids=tuple(packed["prompt"]), completion_ids=ids, mask=(True,) * len(ids)),
        expert=packed["expert"],
        terminated=packed["terminated"],
        log_ratio=packed["log_ratio"],
        features=packed.get("features"),
        count=packed["count"],
    )
