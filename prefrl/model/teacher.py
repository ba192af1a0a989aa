"""A teacher: a language model that the policy is compared with on its own samples, token by token."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from prefrl.errors import ModelError
from prefrl.model.batching import row_outputs
from prefrl.model.language import LanguageModel, token_targets
from prefrl.model.logprobs import token_logps
from prefrl.types import Row


class Teacher:
    """A language model without gradient; make one with `other`, `frozen_copy` or `base`.

    It reads the policy's own token ids. Where a row has `teacher_prompt_ids` they stand in for its prompt: in
    self-distillation the teacher sees a solution there that the policy does not.

    Args:
        model: what computes.
        head: its output head over the policy's vocabulary.
        adapters: False lets it compute with its adapters switched off.
    """

    def __init__(self, model: LanguageModel, head: nn.Module, *, adapters: bool = True) -> None:
        self.model = model
        self.head = head
        self._adapters = adapters

    @classmethod
    def other(cls, model: LanguageModel, policy: LanguageModel) -> Teacher:
        """Another model, which must read the policy's token ids as the policy does.

        Heads of one tokenizer can still differ in size, as models of a family are padded differently. The padding of
        a larger teacher is left out of its distribution; a smaller one has no numbers for the policy's.

        Raises:
            ModelError: the tokenizers differ, or the teacher's head is smaller.
        """
        difference = _tokenizer_difference(model.tokenizer, policy.tokenizer)
        if difference:
            raise ModelError(
                f"The teacher {model.name} and the policy {policy.name} have different tokenizers: {difference}. A "
                "teacher reads the policy's token ids: take one of the policy's own family, or train on the teacher's "
                "answers as text with prefrl sft."
            )
        size, wanted = _entries(model), _entries(policy)
        if size < wanted:
            raise ModelError(
                f"The teacher {model.name} has {size:,} output entries and the policy {policy.name} {wanted:,}; "
                "expected at least as many. Take a teacher of the same family whose embeddings are padded as far."
            )
        return cls(model, model.head if size == wanted else _FirstEntries(model.head, wanted))

    @classmethod
    def frozen_copy(cls, policy: LanguageModel) -> Teacher:
        """The policy as it is now. Only weights that are trained are copied; frozen ones are shared."""
        shared: dict[int, Any] = {id(p): p for p in policy.module.parameters() if not p.requires_grad}
        model = copy.deepcopy(policy.model, shared).requires_grad_(False)
        teacher = LanguageModel(model, policy.tokenizer, name=policy.name)
        return cls(teacher, teacher.head)

    @classmethod
    def base(cls, policy: LanguageModel) -> Teacher:
        """The model below a LoRA policy, at no memory: the adapters are switched off while it computes.

        Raises:
            ModelError: the policy has no LoRA, or trains more than adapters below its output head.
        """
        adapters: dict[str, Any] = getattr(policy.model, "peft_config", {})
        if not adapters:
            raise ModelError(
                f"{policy.name} has no LoRA adapter to switch off, so its base is not there any more. Load the policy "
                "with lora=16, or use Teacher.frozen_copy(policy) before training."
            )
        whole = [name for config in adapters.values() for name in getattr(config, "modules_to_save", None) or ()]
        biased = any(getattr(config, "bias", "none") != "none" for config in adapters.values())
        if whole or biased or hasattr(policy.model.get_output_embeddings(), "get_base_layer"):
            what = (
                f"trains {', '.join(whole)} whole" if whole else "trains biases" if biased else "adapts its output head"
            )
            raise ModelError(
                f"The adapter of {policy.name} {what}, which switching it off does not undo for sure; expected LoRA on "
                "inner layers alone. Load the base model a second time, for Teacher.other(base, policy)."
            )
        return cls(policy, policy.head, adapters=False)

    @torch.no_grad()
    def hidden(self, rows: Sequence[Row]) -> Tensor:
        """Final hidden states (N, H) at the rows' masked-in tokens, laid end to end, without gradient."""
        with contextlib.nullcontext() if self._adapters else _without_adapters(self.model.model):
            return self.model.hidden([_as_seen(row) for row in rows])

    def logps(self, rows: Sequence[Row], token_budget: int, temperature: float = 1.0) -> list[Tensor]:
        """Log-probs (n,) of every row's tokens, in the order given; 0 where the mask is False."""

        def compute(distinct: Sequence[Row]) -> Tensor:
            hidden = self.hidden(distinct)
            return token_logps(hidden, self.head, token_targets(distinct).to(hidden.device), temperature=temperature)

        seen = [_as_seen(row) for row in rows]
        return row_outputs(seen, compute, token_budget, shared=self.model.shares_prompts)


class _FirstEntries(nn.Module):
    def __init__(self, head: nn.Module, size: int) -> None:
        super().__init__()
        self.head, self.size = head, size

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(hidden)
        return logits[..., : self.size]


def _as_seen(row: Row) -> Row:
    return row if row.teacher_prompt_ids is None else replace(row, prompt_ids=row.teacher_prompt_ids)


@contextlib.contextmanager
def _without_adapters(model: Any) -> Iterator[None]:
    """Adapters off; on leaving, on again and as trainable as they were (peft makes all of them trainable)."""
    before = [(p, p.requires_grad) for p in model.parameters()]
    try:
        with model.disable_adapter():
            yield
    finally:
        for parameter, trained in before:
            parameter.requires_grad_(trained)


def _tokenizer_difference(teacher: Any, policy: Any) -> str:
    """What makes the two read ids differently; empty when nothing does."""
    one, two = teacher.get_vocab(), policy.get_vocab()
    if len(one) != len(two):
        return f"{len(one):,} tokens and {len(two):,}"
    for token, index in sorted(two.items(), key=lambda entry: entry[1]):
        if one.get(token) != index:
            return f"{token!r} is {one.get(token, 'unknown')} to the one and {index} to the other"
    for special in ("bos_token_id", "eos_token_id"):
        if getattr(teacher, special) != getattr(policy, special):
            return f"{special} is {getattr(teacher, special)} and {getattr(policy, special)}"
    return ""


def _entries(policy: LanguageModel) -> int:
    return int(policy.model.get_output_embeddings().weight.shape[0])
