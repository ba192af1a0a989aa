"""The yes-probability: a language model is asked whether a history will succeed.

    P = p(yes) / (p(yes) + p(no)),   logit P = logsumexp of the logits of yes - logsumexp of those of no

over all audited spellings. The mass m = p(yes) + p(no) says whether the model answers the question at all: under a
floor of 1/2 the prompt or the template is probably broken. A generative verifier (arXiv 2408.15240) when asked at the
end, a value function when asked on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from prefrl.errors import ConfigError
from prefrl.model.batching import row_outputs
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.language import LanguageModel
from prefrl.model.load import load, resolve
from prefrl.model.logprobs import token_logps
from prefrl.model.yes_queries import Asked, last_hidden
from prefrl.model.yes_record import Question, YesRecord, read_yes_record
from prefrl.model.yes_tokens import YesTokens
from prefrl.rollout.prefix import cache_is_shareable
from prefrl.types import Rollout, Row

At = Literal["end", "turns", "tokens"]
FLOOR = 0.5  # yes/no mass under which answers mean little


def yes_logits(hidden: Tensor, head: nn.Module, tokens: YesTokens, *, mass_gradient: bool = False) -> Tensor:
    """(N, 2): the logit of P(yes) and the log of the yes/no mass, from final hidden states (N, H).

    Only the rows of the head for the answers are multiplied with gradient. The mass needs the normaliser of the whole
    vocabulary: it is computed in chunks, and without gradient unless `mass_gradient`.
    """
    said = _selected(hidden, head, tokens.ids)
    yes, no = said[:, : len(tokens.yes)].logsumexp(-1), said[:, len(tokens.yes) :].logsumexp(-1)
    with torch.set_grad_enabled(mass_gradient and torch.is_grad_enabled()):
        first = torch.full((len(hidden),), tokens.ids[0], device=hidden.device)
        normaliser = said[:, 0] - token_logps(hidden, head, first)
        mass = (said.logsumexp(-1) - normaliser).clamp(max=0.0)
    return torch.stack([yes - no, mass], dim=-1)


def _selected(hidden: Tensor, head: nn.Module, ids: Sequence[int]) -> Tensor:
    """Logits (N, K) of the given tokens alone: the head is called with those of its rows in place of all.

    Weights with one row a token are cut to the rows wanted; others (an adapter's inner ones) stay as they are.
    """
    chosen = torch.tensor(ids, device=hidden.device)
    parameters = dict(head.named_parameters())
    size = max(p.shape[0] for p in parameters.values())
    rows = {name: p.index_select(0, chosen) for name, p in parameters.items() if p.shape[0] == size}
    logits: Tensor = functional_call(head, rows, (hidden,))
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says of one history: calibrated P(yes), the value that it stands for, yes/no mass, raw logit."""

    probability: float
    value: float
    mass: float
    logit: float


class YesModel:
    """A language model that is asked, as a trainable: its output at a masked-in token is about the history before it.

    Args:
        model: the language model.
        record: the question, the spellings, the calibration and the range of returns.
        full: let the loss reach the mass too, for cross-entropy over the whole vocabulary.
        shared: compute a text once for all its questions; off for comparison.

    Raises:
        ConfigError: no spelling of an answer is a single token, or one is both.
    """

    def __init__(
        self, model: LanguageModel, record: YesRecord | None = None, *, full: bool = False, shared: bool = True
    ) -> None:
        self.model = model
        self.record = record or YesRecord()
        self.tokens = YesTokens.of(model.tokenizer, self.record.yes, self.record.no)
        self.question = Question.of(model.tokenizer, self.record.question, model.eos)
        self.full, self.shared = full, shared
        self.token_budget = 8192

    @property
    def name(self) -> str:
        """Where the model came from."""
        return self.model.name

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.model.module

    @property
    def shares_prompts(self) -> bool:
        """False: rows of one prompt do not share it; what is shared is a row, by all questions about it."""
        return False

    @property
    def is_fast(self) -> bool:
        """Whether a text is computed once for all its questions."""
        return self.shared and cache_is_shareable(self.model.decoder)

    def most_tokens(self, wanted: int) -> int:
        """`wanted` tokens of a history, or as many as there are positions for with a question after them, if fewer."""
        positions = int(getattr(self.model.decoder.config, "max_position_embeddings", None) or 0)
        asked = max(map(len, (self.question.plain, self.question.opened, self.question.closed)))
        return max(min(wanted, positions - asked), 0) if positions else wanted

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """(N, 2): raw logit of P(yes) and log mass for the history before every masked-in token, with gradient.

        To ask about a whole row, append any token to it, masked in.
        """
        asked = [self._asked(row) for row in rows]
        hidden = last_hidden(self.model.decoder, asked, self.token_budget, share=self.shared)
        return yes_logits(hidden, self.model.head, self.tokens, mass_gradient=self.full)

    def calibrated(self, logits: Tensor) -> Tensor:
        """`logit / temperature + bias`."""
        return logits / self.record.temperature + self.record.bias

    def values(self, logits: Tensor) -> Tensor:
        """`low + (high - low) sigmoid(calibrated logit)` of raw logits, in float64 where the device has it.

        In float64 `1 - P` is exact enough for a cross-entropy up to logits of 36.
        """
        wide = logits if logits.device.type == "mps" else logits.double()
        return self.record.low + (self.record.high - self.record.low) * torch.sigmoid(self.calibrated(wide))

    def ask(self, rows: Sequence[Row], token_budget: int = 4096) -> list[list[Answer]]:
        """Answers for the history before every masked-in token of every row, without gradient."""
        outputs = row_outputs(rows, self.token_outputs, token_budget, shared=False)
        return [
            [self._answer(*pair) for pair in found[torch.tensor(row.mask)].tolist()]
            for row, found in zip(rows, outputs, strict=True)
        ]

    def save(self, folder: str | Path) -> None:
        """Write the language model (the adapter alone for LoRA), its tokenizer and the record, all or nothing."""
        with atomic_folder(folder) as scratch:
            self.model.model.save_pretrained(scratch)
            self.model.tokenizer.save_pretrained(scratch)
            self.record.write(scratch, self.model.tokenizer)

    def _answer(self, logit: float, log_mass: float) -> Answer:
        one = torch.tensor([logit], dtype=torch.float64)
        p = float(torch.sigmoid(self.calibrated(one)))
        return Answer(p, float(self.values(one)), math.exp(log_mass), logit)

    def _asked(self, row: Row) -> Asked:
        text = (*row.prompt_ids, *row.completion_ids)
        seen = [len(row.prompt_ids) + i for i, m in enumerate(row.mask) if m]
        return Asked(text, tuple((n, self.question.after(text[:n])) for n in seen))


def load_yes_model(
    name: str,
    record: YesRecord | None = None,
    *,
    asks: bool = True,
    lora: int = 0,
    top_layers: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
) -> YesModel:
    """A model to ask: a folder that `YesModel.save` wrote, with its record, or any language model.

    Args:
        name: a run folder, a model folder, a hub id, or smollm2-135m; further arguments as those of `load`.
        record: what to ask and the range of returns; None takes what was saved, else the usual question.
        asks: whether the question and the spellings were chosen; otherwise those that were saved come first.

    Raises:
        ConfigError: the model was trained to answer another question.
        ModelError: see `load`, or a damaged record.
    """
    final = Path(name) / "checkpoints" / "final"
    name = str(final) if final.is_dir() else name
    model = load(name, lora=lora, top_layers=top_layers, dtype=dtype, device=device, seed=seed)
    saved = read_yes_record(resolve(name), model.tokenizer)
    if saved is None or record is None:
        return YesModel(model, record or saved)
    wanted, trained = ((r.question, r.yes, r.no) for r in (record, saved))
    if asks and wanted != trained:
        raise ConfigError(
            f"{name} was trained to answer {saved.question!r}, not {record.question!r} or in other words. Leave the "
            "question and the spellings out, or train it with them: prefrl yes"
        )
    return YesModel(model, replace(saved, low=record.low, high=record.high))


def query_row(prompt_ids: Sequence[int], completion_ids: Sequence[int], places: Sequence[int]) -> Row:
    """A row that asks about the history before token `i` of a completion, for every `i`; its length asks at the end."""
    n = len(completion_ids)
    wrong = [i for i in places if not 0 <= i <= n]
    if wrong or not places:
        raise ConfigError(f"Asked at places {list(places)} of a completion of {n} tokens; expected some of 0 to {n}.")
    chosen = set(places)
    ids = (*completion_ids, 0) if n in chosen else tuple(completion_ids)  # the last token is never looked at
    return Row(prompt_ids=tuple(prompt_ids), completion_ids=ids, mask=tuple(i in chosen for i in range(len(ids))))


def places_of(rollout: Rollout, at: At | Sequence[int]) -> list[int]:
    """Where a rollout is asked about, in tokens of its completion seen.

    `end` after all of it, `turns` after every turn of the policy (without turns, the end), `tokens` before every
    sampled token and at the end; or places of your own.
    """
    n = len(rollout.completion_ids)
    if at == "end":
        return [n]
    if at == "turns":
        return sorted({end for _, end in rollout.turns} or {n})
    if at == "tokens":
        return [*(i for i, sampled in enumerate(rollout.mask) if sampled), n]
    if isinstance(at, str):
        raise ConfigError(f"Asked at {at!r}; valid: end, turns, tokens, or a list of places.")
    return sorted(set(at))
