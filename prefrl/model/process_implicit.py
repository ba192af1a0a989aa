"""An implicit process reward model: a language model whose log-ratio to where it started predicts the outcome.

    r_t = beta (log phi(y_t | x, y_<t) - log ref(y_t | x, y_<t)),    P(right) = sigmoid(sum_t r_t)

phi is trained on outcomes alone, by the binary cross-entropy of that probability. The partial sums are then its values
of the prefixes, so that every token has a reward although no step was ever labelled (arXiv 2412.01981; online in
PRIME, arXiv 2502.01456).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from prefrl.config import ModelConfig
from prefrl.data.chat import encode_completion
from prefrl.data.steps import split_steps
from prefrl.errors import ModelError
from prefrl.model.batching import row_outputs
from prefrl.model.engine import Engine
from prefrl.model.language import LanguageModel
from prefrl.model.load import load
from prefrl.types import Batch, Completion, Prompt, Row, Sums


class ImplicitModel:
    """phi, the reference, and how phi learns.

    Args:
        model: phi; the reference is what it is now, unless another is given.
        reference: the reference where phi was trained before; it has the same vocabulary.
        beta: scale of the log-ratios.
        separator: what ends a step of a text.
        lr, token_budget: of its updates.

    Raises:
        ModelError: the two have different vocabularies.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        reference: LanguageModel | None = None,
        beta: float = 0.05,
        separator: str = "\n\n",
        lr: float = 1e-6,
        token_budget: int = 2048,
    ) -> None:
        if reference is not None and reference.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            raise ModelError(f"{model.name} and its reference {reference.name} have different vocabularies.")
        self.model, self.reference = model, reference
        self.beta, self.separator = beta, separator
        self.engine = Engine(model, ModelConfig(lr=lr, token_budget=token_budget), reference=reference is None)

    @property
    def tokenizer(self) -> Any:
        """That of phi, and so of the reference and of the policy."""
        return self.model.tokenizer

    def split(self, text: str) -> tuple[str, ...]:
        """The steps of a text."""
        return split_steps(text, self.separator)

    def encode(self, prompt: Prompt, completion: Completion) -> Row:
        """The row of a text."""
        ids = tuple(encode_completion(self.tokenizer, prompt, completion))
        ids = ids if completion.finished or completion.ids is not None else ids[:-1]
        return Row(prompt_ids=self.model.encode(prompt), completion_ids=ids, mask=(True,) * len(ids))

    def token_rewards(self, rows: Sequence[Row]) -> list[Tensor]:
        """r_t (n,) of every row's tokens, without gradient; 0 where the mask is False."""
        live, start = self.engine.logps(rows), self._reference_logps(rows)
        return [self.beta * (a - b) for a, b in zip(live, start, strict=True)]

    def fit(self, rows: Sequence[Row], outcomes: Sequence[float]) -> dict[str, float]:
        """One update on the outcomes (0 to 1) of all rows; the loss is the mean over the rows of all processes."""
        count = float(self.engine.total(torch.tensor([float(len(rows))])).clamp(min=1.0))
        start = self._reference_logps(rows)
        judged = [
            replace(
                row,
                label=outcome,
                weight=1.0 / count,
                streams={"ref_logps": ref, "ce": torch.ones(len(row.mask))},
            )
            for row, outcome, ref in zip(rows, outcomes, start, strict=True)
        ]
        return self.engine.step(judged, lambda batch: implicit_objective(batch, self.beta))

    def save(self, folder: str | Path) -> None:
        """Write phi; the reference is whatever phi was trained from."""
        self.engine.save(folder)

    def _reference_logps(self, rows: Sequence[Row]) -> list[Tensor]:
        if self.reference is None:
            return self.engine.logps(rows, "reference")
        budget = self.engine.optim.token_budget
        return row_outputs(rows, self.reference.token_outputs, budget, shared=self.reference.shares_prompts)


def implicit_objective(batch: Batch, beta: float) -> tuple[Tensor, Sums]:
    """Weighted sum over rows of the cross-entropy of sigmoid(beta sum_t (log phi - log ref)) with their `label`."""
    ratios = batch.outputs - batch.streams["ref_logps"]
    odds = beta * ratios.new_zeros(batch.rows).index_add(0, batch.row, ratios)
    losses = softplus(odds) - batch.label * odds
    right = (odds.detach() > 0) == (batch.label > 0.5)
    count = odds.new_tensor(float(batch.rows))
    return (batch.weight * losses).sum(), {
        "nll": (losses.detach().sum(), count),
        "accuracy": (right.sum(), count),
        "probability": (odds.detach().sigmoid().sum(), count),
    }


def load_implicit_model(
    path: str,
    *,
    reference: str = "",
    beta: float = 0.05,
    separator: str = "\n\n",
    lr: float = 1e-6,
    lora: int = 0,
    top_layers: int = 0,
    device: str = "auto",
) -> ImplicitModel:
    """phi from a folder or hub id; `reference` likewise where phi was trained before, else phi as it is now."""
    final = Path(path) / "checkpoints" / "final"
    phi = load(str(final) if final.is_dir() else path, lora=lora, top_layers=top_layers, device=device)
    start = load(reference, device=device) if reference else None
    return ImplicitModel(phi, reference=start, beta=beta, separator=separator, lr=lr)
