"""A transformer with a scalar head, or several, in the standard sequence-classification layout.

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

from prefrl.errors import ModelError
from prefrl.model.batching import row_outputs
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
from prefrl.model.reward_head import NAMES, divide_head, head_fingerprint, head_name, output_layer, reset_head
from prefrl.model.reward_record import RewardRecord, check_belongs, read_record
from prefrl.model.reward_rows import add_plain_template
from prefrl.model.reward_scorer import RewardScorer
from prefrl.rollout.prefix import cache_is_shareable, right_pad
from prefrl.types import Row


class RewardModel(RewardScorer):
    """Scores rows at their last token, by one head or several. Dropout is off throughout.

    Args:
        model: the transformer, with an adapter or without.
        tokenizer: its tokenizer.
        name: where it came from.
        record: how its scores are made and read.
        adapter: name of the adapter that is this model's own, where several share one transformer.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str, record: RewardRecord | None = None, adapter: str = ""
    ) -> None:
        super().__init__(tokenizer, name, record)
        self.model = model
        self.adapter = adapter
        self.head_lr_factor = 1.0

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
    def members(self) -> int:
        return int(self._bare.config.num_labels)

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return self.is_decoder and cache_is_shareable(self.decoder)

    @property
    def most_tokens(self) -> int:
        positions = getattr(self._bare.config, "max_position_embeddings", None) or 0
        known = [positions] if self.is_decoder else [positions, self.tokenizer.model_max_length]
        return min((int(n) for n in known if 0 < n < 2**31), default=0)  # without a limit, tokenizers name a huge one

    def activate(self) -> None:
        """Let this model's adapter be the one that computes and is trained, where several share one transformer."""
        if self.adapter and self.model.active_adapter != self.adapter:
            self.model.set_adapter(self.adapter)

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """The score at every masked-in token, laid end to end (N,), with gradient; (N, K) for K heads."""
        self.activate()
        if not self.is_decoder:
            return _flat(self._encoder_scores(rows))
        prefixes = [row.prompt_ids[:-1] for row in rows]
        suffixes = [(*row.prompt_ids[-1:], *row.completion_ids) for row in rows]
        hidden = suffix_hidden(self.decoder, prefixes, suffixes)
        mask = torch.tensor([m for row in rows for m in (*(False,) * len(row.prompt_ids[-1:]), *row.mask)])
        return _flat(self.head(hidden[mask.to(hidden.device)]))

    def _encoder_scores(self, rows: Sequence[Row]) -> Tensor:
        device = next(self.model.parameters()).device
        ids, mask = right_pad([[*row.prompt_ids, *row.completion_ids] for row in rows], device)
        scores: Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        return scores

    def member_scores(self, rows: Sequence[Row], token_budget: int = 4096) -> Tensor:
        outputs = row_outputs(rows, self.token_outputs, token_budget, shared=self.shares_prompts)
        last = [values[-1] for values in outputs]
        return torch.stack(last).reshape(len(rows), self.members) if last else torch.zeros(0, self.members)

    @property
    def output_layer(self) -> nn.Linear:
        """The linear layer that gives the scores; under an adapter the copy that is trained with it."""
        self.activate()
        return output_layer(self._bare)

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        """The parameters that start from nothing; they learn at `head_lr_factor` times the learning rate."""
        return list(self.output_layer.parameters())

    @torch.no_grad()
    def head_input_size(self, rows: Sequence[Row]) -> float:
        """Root mean square of the numbers that the head reads for these rows: about 2 in SmolLM2, .06 in MiniLM."""
        seen: list[Tensor] = []
        hook = self.output_layer.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().float()))
        try:
            self.member_scores(rows)
        finally:
            hook.remove()
        return float(torch.cat([x.flatten() for x in seen]).square().mean().sqrt())

    def divide(self, temperature: float) -> None:
        divide_head(self.output_layer, temperature)

    def fingerprint(self) -> str:
        return head_fingerprint(self.output_layer)

    def save(self, folder: str | Path) -> None:
        """Write the sequence-classification layout (adapter and head for LoRA), the tokenizer and the record.

        The folder appears whole or not at all.
        """
        with atomic_folder(folder) as scratch:
            self.write(scratch)

    def write(self, folder: Path) -> None:
        """Write everything into a folder that is there already."""
        if self.adapter:
            self.model.save_pretrained(folder, selected_adapters=[self.adapter])
            for file in (folder / self.adapter).glob("*"):  # peft gives each adapter but the default one a folder
                file.rename(folder / file.name)
            if self.adapter != "default":
                (folder / self.adapter).rmdir()
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.record.write(folder, self.tokenizer, self.fingerprint(), decoder=self.is_decoder)


def _flat(scores: Tensor) -> Tensor:
    """(N, 1) -> (N,) in float32; (N, K) stays."""
    return scores.float().squeeze(-1)


def new_reward_model(
    base: str,
    *,
    lora: int = 0,
    top_layers: int = 0,
    layers: int = 0,
    heads: int = 1,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
) -> RewardModel:
    """A fresh scalar head on any causal LM or encoder.

    The head starts at 0, so that every score is 0 and the first loss is exactly log 2. A random head is worse:
    the final hidden states of language models are large, so its first scores are confident noise, which a few
    hundred pairs did not undo in our measurements (docs/reward_models.md). Several heads start at small random
    weights, since equal ones would stay equal. A tokenizer without a chat template gets a plain one.

    Args:
        base: a hub id, a local folder, or the embedded default.
        lora: rank of a LoRA adapter; the head is trained and saved with it. 0 trains the weights themselves.
        top_layers: train only this many of the last layers (and the head); 0 trains all.
        layers: keep only the first layers of the base, for a smaller and faster model; 0 keeps all.
        heads: how many heads score every row.
        seed: of the adapter, the heads, and whatever else the base has no weights for.

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
    options: dict[str, Any] = {"num_labels": heads, "dtype": pick_dtype(dtype, place, frozen=lora > 0)}
    if layers:
        options["num_hidden_layers"] = layers
    torch.manual_seed(seed)
    model: Any = pretrained(AutoModelForSequenceClassification, where, base, **options)
    if is_adapter(where):
        model = model.merge_and_unload().requires_grad_(True)  # peft had frozen all but the adapter
    model, tokenizer = model.to(place), load_tokenizer(base)
    add_plain_template(tokenizer)
    return with_fresh_head(model, tokenizer, name=base, lora=lora, top_layers=top_layers, seed=seed, random=heads > 1)


def with_fresh_head(
    model: Any,
    tokenizer: Any,
    *,
    name: str,
    lora: int = 0,
    top_layers: int = 0,
    seed: int = 0,
    random: bool = False,
) -> RewardModel:
    """A sequence-classification model with a fresh head, and what is trained of it; see `new_reward_model`.

    `random` gives the head small random weights in place of zeros.
    """
    _separate_padding(model, tokenizer)
    reset_head(output_layer(model), random=random)
    if lora:
        model = add_lora(model, lora, seed, task="SEQ_CLS", keep=(head_name(model),))
    elif top_layers:
        head: nn.Module = getattr(model, head_name(model))
        freeze_below(model, getattr(model, model.base_model_prefix), top_layers)
        head.requires_grad_(True)
    made = RewardModel(model.eval(), tokenizer, name=name)
    made.record = RewardRecord(members=made.members)
    return made


def load_reward_model(folder: str, *, dtype: str = "auto", device: str = "auto") -> RewardModel:
    """A trained reward model: ours, or any sequence-classification model with one label.

    A decoder of others that pads with its end-of-turn token was trained, and is read everywhere, before the end-of-turn
    tokens of a text, as `transformers` looks for the last token that is not padding. It is read so here too; ours pool
    by position.

    Raises:
        ModelError: not a model, damaged, without a trained head, with another number of labels than its record says,
            or one, or with a record that belongs to another model.
    """
    from transformers import AutoModelForSequenceClassification

    where, place = resolve(folder), pick_device(device)
    found = read_record(where)
    record, prints = found if found is not None else (RewardRecord(), {})
    options: dict[str, Any] = {"dtype": pick_dtype(dtype, place, frozen=True)}
    if is_adapter(where):
        # An adapter folder has no model config of its own; its base would come with the default of two labels.
        options["num_labels"] = record.members
        _require_head(where)
    model: Any = pretrained(AutoModelForSequenceClassification, where, folder, **options)
    labels, expected = model.config.num_labels, record.members
    if labels != expected:
        has = "a reward model has one" if expected == 1 else f"its record says {expected}"
        raise ModelError(f"{folder} has {labels} labels; {has}. Train one with: prefrl reward")
    made = RewardModel(model.to(place).eval(), load_tokenizer(folder), name=folder, record=record)
    if prints:
        check_belongs(prints, where, made.tokenizer, made.fingerprint())
    elif made.is_decoder and model.config.pad_token_id in made.ends:
        made.unread = model.config.pad_token_id
    return made


def _require_head(where: str) -> None:
    """Refuse an adapter that was saved without the head it was trained with."""
    from safetensors import safe_open

    path = Path(where) / "adapter_model.safetensors"
    if not path.exists():
        return  # the older format, or damaged: what loads it says so
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
    if not any(part in NAMES for name in names for part in name.split(".")):
        raise ModelError(
            f"The adapter in {where} was saved without its head ({' or '.join(NAMES)}), so its scores would be random. "
            "Train it again with the head among the saved modules: modules_to_save=['score'] in peft."
        )


def _separate_padding(model: Any, tokenizer: Any) -> None:
    """Record a padding token other than EOS, so that `transformers` pools the saved model as we do."""
    special = [tokenizer.pad_token_id, tokenizer.unk_token_id, *sorted(tokenizer.added_tokens_decoder)]
    free = [i for i in special if i is not None and i not in (tokenizer.eos_token_id, tokenizer.bos_token_id)]
    if free:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(free[0])
        model.config.pad_token_id = free[0]
