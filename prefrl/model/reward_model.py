"""A transformer with a scalar head, in the standard sequence-classification layout.

Decoders are pooled at the last position that is really there, never by comparing ids with a padding id:
with `pad == eos`, the common fallback, that reads the score one token too early. Encoders are pooled as
their own architecture does. Whole folders load in `transformers` as they are, and theirs load here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prefrl.data.chat import encode_completion, encode_prompt, eos_ids
from prefrl.errors import ModelError
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.kernel import suffix_hidden
from prefrl.model.load import (
    add_lora,
    freeze_below,
    is_adapter,
    load_tokenizer,
    pick_device,
    pick_dtype,
    pretrained,
    resolve,
)
from prefrl.rollout.prefix import cache_is_shareable, right_pad
from prefrl.types import Completion, Prompt, Row


class RewardModel:
    """Scores rows at their last token. Dropout is off throughout."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        if tokenizer.eos_token is None and tokenizer.sep_token is not None:
            tokenizer.eos_token = tokenizer.sep_token  # encoders end a text with their separator
        self._eos = eos_ids(None, tokenizer)

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        module: nn.Module = self.model
        return module

    @property
    def _bare(self) -> Any:
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    @property
    def is_decoder(self) -> bool:
        """True for causal models, which have a `score` head; False for encoders."""
        return hasattr(self._bare, "score")

    @property
    def decoder(self) -> Any:
        """The transformer without the head, adapters included."""
        return getattr(self._bare, self._bare.base_model_prefix)

    @property
    def head(self) -> nn.Module:
        """The scalar head of a decoder."""
        head: nn.Module = self._bare.score
        return head

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return self.is_decoder and cache_is_shareable(self.decoder)

    def encode(self, prompt: Prompt, completion: Completion) -> Row:
        """The row that scores `completion` as an answer to `prompt`, by text, whatever tokenizer wrote it.

        A cut-off completion gets no end-of-turn token, so that the model can tell it from a finished one.
        """
        prompt_ids = tuple(encode_prompt(self.tokenizer, prompt))
        ids = tuple(encode_completion(self.tokenizer, prompt, Completion(text=completion.text)))
        if not completion.finished and ids and ids[-1] in self._eos:
            ids = ids[:-1]
        if not ids:
            prompt_ids, ids = prompt_ids[:-1], prompt_ids[-1:]
        return Row(prompt_ids=prompt_ids, completion_ids=ids, mask=(*(False,) * (len(ids) - 1), True))

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """The score at every masked-in token, laid end to end (N,), with gradient."""
        if not self.is_decoder:
            return self._encoder_scores(rows)
        prefixes = [row.prompt_ids[:-1] for row in rows]
        suffixes = [(*row.prompt_ids[-1:], *row.completion_ids) for row in rows]
        hidden = suffix_hidden(self.decoder, prefixes, suffixes)
        mask = torch.tensor([m for row in rows for m in (*(False,) * len(row.prompt_ids[-1:]), *row.mask)])
        scores: Tensor = self.head(hidden[mask.to(hidden.device)])
        return scores.float().squeeze(-1)

    def _encoder_scores(self, rows: Sequence[Row]) -> Tensor:
        device = next(self.model.parameters()).device
        ids, mask = right_pad([[*row.prompt_ids, *row.completion_ids] for row in rows], device)
        scores: Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        return scores.float().squeeze(-1)

    @torch.no_grad()
    def scores(self, rows: Sequence[Row], token_budget: int = 4096) -> list[float]:
        """Scores of rows, computed in micro-batches, in the order given."""
        from prefrl.model.batching import pack

        result: dict[int, float] = {}
        for micro in pack(rows, token_budget, shared=self.shares_prompts):
            values = self.token_outputs(micro).tolist()
            result.update({id(row): value for row, value in zip(micro, values, strict=True)})
        return [result[id(row)] for row in rows]

    def save(self, folder: str | Path) -> None:
        """Write the sequence-classification layout (adapter and head for LoRA) and the tokenizer, all or nothing."""
        with atomic_folder(folder) as scratch:
            self.model.save_pretrained(scratch)
            self.tokenizer.save_pretrained(scratch)


def new_reward_model(
    base: str,
    *,
    lora: int = 0,
    top_layers: int = 0,
    layers: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
) -> RewardModel:
    """A fresh scalar head on any causal LM or encoder.

    The head starts at 0, so that every score is 0 and the first loss is exactly log 2. A random head is worse:
    the final hidden states of language models are large, so its first scores are confident noise, which a few
    hundred pairs did not undo in our measurements (docs/reward_models.md).

    Args:
        base: a hub id, a local folder, or the embedded default.
        lora: rank of a LoRA adapter; the head is trained and saved with it. 0 trains the weights themselves.
        top_layers: train only this many of the last layers (and the head); 0 trains all.
        layers: keep only the first layers of the base, for a smaller and faster model; 0 keeps all.
        seed: of the adapter.

    Raises:
        ModelError: the base cannot be loaded, or `lora` meets a base that could not be loaded again as it is.
    """
    from transformers import AutoModelForSequenceClassification

    where, place = resolve(base), pick_device(device)
    if lora and (layers or is_adapter(where)):
        raise ModelError(
            f"lora={lora} saves an adapter without its base, and {base} would come back "
            f"{'with all its layers' if layers else 'without its own adapter'}. Set lora to 0 to save whole weights."
        )
    options: dict[str, Any] = {"num_labels": 1, "dtype": pick_dtype(dtype, place, frozen=lora > 0)}
    if layers:
        options["num_hidden_layers"] = layers
    model: Any = pretrained(AutoModelForSequenceClassification, where, base, **options)
    if is_adapter(where):
        model = model.merge_and_unload().requires_grad_(True)  # peft had frozen all but the adapter
    model, tokenizer = model.to(place), load_tokenizer(base)
    return with_fresh_head(model, tokenizer, name=base, lora=lora, top_layers=top_layers, seed=seed)


def with_fresh_head(
    model: Any, tokenizer: Any, *, name: str, lora: int = 0, top_layers: int = 0, seed: int = 0
) -> RewardModel:
    """A sequence-classification model whose head is set to 0, and what is trained of it; see `new_reward_model`."""
    _separate_padding(model, tokenizer)
    head_name = "score" if hasattr(model, "score") else "classifier"
    head: nn.Module = getattr(model, head_name)
    if isinstance(head, nn.Linear):
        nn.init.zeros_(head.weight)
    if lora:
        model = add_lora(model, lora, seed, task="SEQ_CLS", keep=(head_name,))
    elif top_layers:
        freeze_below(model, getattr(model, model.base_model_prefix), top_layers)
        head.requires_grad_(True)
    return RewardModel(model.eval(), tokenizer, name=name)


def load_reward_model(folder: str, *, dtype: str = "auto", device: str = "auto") -> RewardModel:
    """A trained reward model: ours, or any sequence-classification model with one label.

    Raises:
        ModelError: not a model, damaged, or with another number of labels than one.
    """
    from transformers import AutoModelForSequenceClassification

    where, place = resolve(folder), pick_device(device)
    model: Any = pretrained(
        AutoModelForSequenceClassification, where, folder, dtype=pick_dtype(dtype, place, frozen=True), **_labels(where)
    )
    labels = model.config.num_labels
    if labels != 1:
        raise ModelError(f"{folder} has {labels} labels; a reward model has one. Train one with: prefrl reward")
    return RewardModel(model.to(place).eval(), load_tokenizer(folder), name=folder)


def _labels(where: str) -> dict[str, Any]:
    # An adapter folder has no model config of its own; its base would come with the default of two labels.
    return {"num_labels": 1} if is_adapter(where) else {}


def _separate_padding(model: Any, tokenizer: Any) -> None:
    """Record a padding token other than EOS, so that `transformers` pools the saved model as we do."""
    special = [tokenizer.pad_token_id, tokenizer.unk_token_id, *sorted(tokenizer.added_tokens_decoder)]
    free = [i for i in special if i is not None and i not in (tokenizer.eos_token_id, tokenizer.bos_token_id)]
    if free:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(free[0])
        model.config.pad_token_id = free[0]
