"""A value network of its own: a decoder with a scalar head, fresh or from a trained reward model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prefrl.errors import ModelError
from prefrl.model.kernel import suffix_hidden
from prefrl.model.language import LanguageModel
from prefrl.model.reward_model import RewardModel, load_reward_model, new_reward_model, with_fresh_head
from prefrl.types import Row


class ValueModel:
    """A network of its own: a decoder with a scalar head, in the layout of a reward model."""

    def __init__(self, scorer: RewardModel) -> None:
        if not scorer.is_decoder:
            raise ModelError(
                f"{scorer.name} is an encoder, which sees what comes after a token; a critic must not. "
                "Name a causal language model, such as the policy's."
            )
        self.scorer = scorer

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.scorer.module

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return self.scorer.shares_prompts

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """V of the history before every masked-in token, laid end to end (N,), with gradient."""
        hidden = suffix_hidden(
            self.scorer.decoder,
            [row.prompt_ids[:-1] for row in rows],
            [(row.prompt_ids[-1], *row.completion_ids[:-1]) for row in rows],
        )
        mask = torch.tensor([m for row in rows for m in row.mask], device=hidden.device)
        values: Tensor = self.scorer.head(hidden[mask])
        return values.float().squeeze(-1)

    def save(self, folder: str | Path) -> None:
        """Write the sequence-classification layout (adapter and head for LoRA) and the tokenizer, all or nothing."""
        self.scorer.save(folder)


def new_value_model(
    base: str, *, lora: int = 0, top_layers: int = 0, dtype: str = "auto", device: str = "auto", seed: int = 0
) -> ValueModel:
    """A fresh scalar head, at 0, on any causal LM; arguments and errors as those of `new_reward_model`."""
    return ValueModel(new_reward_model(base, lora=lora, top_layers=top_layers, dtype=dtype, device=device, seed=seed))


def load_value_model(folder: str, *, dtype: str = "auto", device: str = "auto") -> ValueModel:
    """A saved value network, or a trained reward model, whose scores are then the first values."""
    return ValueModel(load_reward_model(folder, dtype=dtype, device=device))


def copied_value_model(policy: LanguageModel, *, top_layers: int = 0) -> ValueModel:
    """A fresh scalar head, at 0, on a copy of the policy's body as it is now, a LoRA adapter merged into it.

    Raises:
        ModelError: the architecture has no sequence classification in `transformers`.
    """
    from transformers import AutoModelForSequenceClassification

    source = policy
    if hasattr(policy.model, "merge_and_unload"):
        source = LanguageModel(copy.deepcopy(policy.model).merge_and_unload(), policy.tokenizer, name=policy.name)
    config = copy.deepcopy(source.decoder.config)
    config.num_labels = 1
    try:
        model: Any = AutoModelForSequenceClassification.from_config(config)
    except ValueError as error:
        raise ModelError(
            f"{policy.name} ({config.model_type}) has no model with a scalar head in transformers. "
            "Use the critic 'head', which needs none."
        ) from error
    parameter = next(source.module.parameters())
    getattr(model, model.base_model_prefix).load_state_dict(source.decoder.state_dict())
    model.to(parameter.device, parameter.dtype)
    return ValueModel(with_fresh_head(model, copy.deepcopy(policy.tokenizer), name=policy.name, top_layers=top_layers))
