"""A causal language model as an actor: it samples rollouts and gives log-probs of rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prefrl.config import SamplingConfig
from prefrl.data.chat import encode_prompt, encode_reply, eos_ids
from prefrl.errors import DataError
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.kernel import suffix_hidden
from prefrl.model.logprobs import TeacherStates, token_logps, token_statistics
from prefrl.rollout.local import Drawn, Request, draw, requests_for
from prefrl.rollout.prefix import cache_is_shareable
from prefrl.rollout.sampler import occurrences
from prefrl.types import Extra, Prompt, Rollout, Row

if TYPE_CHECKING:
    from prefrl.model.teacher import Teacher


class LanguageModel:
    """A Hugging Face causal LM (with or without adapters) and its tokenizer. Dropout is off throughout."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.eos = eos_ids(getattr(model, "generation_config", None), tokenizer)

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        module: nn.Module = self.model
        return module

    @property
    def decoder(self) -> Any:
        """The transformer without its output head, adapters included."""
        return _inner(self.model).get_decoder()

    @property
    def head(self) -> nn.Module:
        """The output head, with the model's final soft-capping or scaling of logits if it has any."""
        inner = _inner(self.model)
        config = inner.config.get_text_config()
        head: nn.Module = inner.get_output_embeddings()
        cap = getattr(config, "final_logit_softcapping", None)
        scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
        return head if not cap and scale == 1.0 else _ShapedHead(head, float(scale), float(cap or 0.0))

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return cache_is_shareable(self.decoder)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a prompt, ready for the completion to follow."""
        ids = tuple(encode_prompt(self.tokenizer, prompt))
        if not ids:
            raise DataError(f"Prompt {prompt.id!r} has no tokens: the model needs at least one to continue from.")
        return ids

    def encode_reply(self, prompt: Prompt, text: str, *, closed: bool, role: str = "user") -> tuple[int, ...]:
        """Token ids between two turns of the policy, of which the first was `closed` by the policy itself or not."""
        return tuple(encode_reply(self.tokenizer, prompt, text, closed=closed, role=role))

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """Log-probs of all masked-in tokens of the rows, laid end to end (N,), with gradient."""
        hidden = self.hidden(rows)
        return token_logps(hidden, self.head, token_targets(rows).to(hidden.device), temperature=temperature)

    def token_statistics(
        self, rows: Sequence[Row], temperature: float, extras: Collection[Extra], teacher: Teacher | None = None
    ) -> dict[str, Tensor]:
        """`logps`, as `token_outputs` has them, and every extra of the same tokens, each (N,) with gradient.

        The teacher computes first, when no activations of this model are held yet.
        """
        states = None
        if "teacher_kl" in extras:
            assert teacher is not None, "teacher_kl needs a teacher"
            states = TeacherStates(teacher.hidden(rows), teacher.head)
        hidden = self.hidden(rows)
        return token_statistics(
            hidden,
            self.head,
            token_targets(rows).to(hidden.device),
            temperature=temperature,
            entropy="entropy" in extras,
            teacher=states,
        )

    def hidden(self, rows: Sequence[Row]) -> Tensor:
        """Final hidden states (N, H) that predict the rows' masked-in tokens, laid end to end, with gradient."""
        states = suffix_hidden(
            self.decoder,
            [row.prompt_ids[:-1] for row in rows],
            [(row.prompt_ids[-1], *row.completion_ids[:-1]) for row in rows],
        )
        return states[torch.tensor([m for row in rows for m in row.mask], device=states.device)]

    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingConfig, *, seed: int, version: int = 0
    ) -> list[Rollout]:
        """Draw `n` completions of every prompt; the rollouts of a prompt come together."""
        encoded = [self.encode(prompt) for prompt in prompts]
        counts = occurrences(prompts)
        drawn = self.draw(requests_for(prompts, encoded, counts, n, params.max_new_tokens, seed), params)
        return [
            Rollout(
                prompt=prompts[i // n],
                prompt_ids=encoded[i // n],
                completion_ids=one.ids,
                mask=(True,) * len(one.ids),
                logps=one.logps,
                text=self.decode(list(one.ids)),
                stop=one.stop,
                group=f"{prompts[i // n].id}#{counts[i // n]}",
                version=version,
            )
            for i, one in enumerate(drawn)
        ]

    def draw(self, requests: Sequence[Request], params: SamplingConfig) -> list[Drawn]:
        """Draw one completion (or turn) per request, in the order of the requests."""
        return draw(self.decoder, self.head, requests, params, eos=self.eos, decode=self.decode)

    def decode(self, ids: list[int]) -> str:
        """Text of token ids without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def save(self, folder: str | Path) -> None:
        """Write the Hugging Face layout (the adapter alone for LoRA) and the tokenizer, all or nothing."""
        with atomic_folder(folder) as scratch:
            self.model.save_pretrained(scratch)
            self.tokenizer.save_pretrained(scratch)


class _ShapedHead(nn.Module):
    def __init__(self, head: nn.Module, scale: float, cap: float) -> None:
        super().__init__()
        self.head, self.scale, self.cap = head, scale, cap

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(hidden) * self.scale
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits


def token_targets(rows: Sequence[Row]) -> Tensor:
    """Ids (N,) of the masked-in tokens."""
    return torch.tensor(
        [t for row in rows for t, m in zip(row.completion_ids, row.mask, strict=True) if m], dtype=torch.long
    )


def _inner(model: Any) -> Any:
    """The transformers model inside an adapter wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
