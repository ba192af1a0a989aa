"""Critics whose value is a probability on the scale of returns: V = low + (high - low) P.

YesValues      P(yes) of a language model that is asked about the history; see `yes_probability`
ProcessValues  P(fine) of a process reward model, read at the last token of the history
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prefrl.config import ModelConfig
from prefrl.errors import ConfigError, ModelError
from prefrl.model.language import LanguageModel
from prefrl.model.load import freeze_below, resolve
from prefrl.model.process_model import ProcessModel, load_process_model
from prefrl.model.process_record import read_process_record
from prefrl.model.reward_record import read_record
from prefrl.model.value_model import ValueModel, load_value_model
from prefrl.model.yes_probability import FLOOR, YesModel, load_yes_model
from prefrl.model.yes_record import SUCCEED, YesRecord
from prefrl.types import Row

Aggregate = Literal["last", "min", "product"]
log = logging.getLogger("prefrl.model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a critic that says probabilities is asked and read.

    question   what a yes critic is asked; empty takes the usual question
    low, high  returns that probabilities 0 and 1 stand for
    aggregate  how a process model's probabilities of earlier steps count; see `ProcessValues`
    """

    question: str = ""
    low: float = 0.0
    high: float = 1.0
    aggregate: Aggregate = "last"


class YesValues:
    """The yes-probability as a value: a question is put after the history before every masked-in token.

    Attributes:
        asked: what answers, with its record.
        mass: mean yes/no mass of the last histories it was asked about; NaN before the first.
    """

    def __init__(self, asked: YesModel) -> None:
        self.asked = asked
        self.mass = float("nan")
        self._warned = False

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.asked.module

    @property
    def shares_prompts(self) -> bool:
        """False; see `YesModel`."""
        return self.asked.shares_prompts

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """V of the history before every masked-in token, laid end to end (N,), with gradient.

        Raises:
            ConfigError: a history leaves the model no positions for the question.
        """
        self.refuse_longer(max((len(row.prompt_ids) + _last(row.mask) for row in rows), default=0))
        found = self.asked.token_outputs(rows)
        self.mass = float(found[:, 1].detach().exp().mean())
        if self.mass < FLOOR and not self._warned:
            self._warned = True
            log.warning(
                "The critic %s answers yes or no with probability %.2f only; below %.2f its values mean little at "
                "first. Try another algorithm.critic.question, or train it: prefrl yes",
                self.asked.name,
                self.mass,
                FLOOR,
            )
        return self.asked.values(found[:, 0])

    def refuse_longer(self, tokens: int) -> None:
        """Refuse histories of so many tokens where the question after them would be past the model's positions.

        Raises:
            ConfigError: there is no room for it.
        """
        most = self.asked.most_tokens(tokens)
        if most < tokens:
            raise ConfigError(
                f"The critic {self.asked.name} has room for histories of {most} tokens with its question after them, "
                f"but there are some of {tokens}. Lower data.max_prompt_tokens or sampling.max_new_tokens, ask a "
                "shorter algorithm.critic.question, or choose another algorithm.critic.kind, such as 'head'."
            )

    def figures(self) -> dict[str, float]:
        """What a step reports beside the loss."""
        return {"yesno_mass": self.mass}

    def save(self, folder: str | Path) -> None:
        """Write the model, its tokenizer and its record, all or nothing."""
        self.asked.save(folder)


def yes_values(policy: LanguageModel, base: str, reading: Reading, optim: ModelConfig, seed: int) -> YesValues:
    """A yes critic of a policy: a copy of it, trained where it is, or of a `base` model that reads the same tokens.

    Raises:
        ModelError: the base cannot be loaded, or has another tokenizer.
        ConfigError: the base was trained to answer another question, or no answer is a single token.
    """
    record = YesRecord(question=reading.question or SUCCEED, low=reading.low, high=reading.high)
    if not base:
        copied = LanguageModel(copy.deepcopy(policy.model), policy.tokenizer, name=policy.name)
        return YesValues(YesModel(copied, record))
    how: dict[str, Any] = {"lora": optim.lora, "top_layers": optim.top_layers, "dtype": optim.dtype}
    asked = load_yes_model(base, record, asks=bool(reading.question), device=optim.device, seed=seed, **how)
    check_tokens(policy.tokenizer, asked.model.tokenizer, base)
    return YesValues(asked)


class ProcessValues:
    """A process reward model as a critic: how likely it is that all is fine, read at the last token of the history.

    Args:
        process: the model, read at the steps' own tokens.
        low, high: returns that probabilities 0 and 1 stand for.
        aggregate: `last` takes the probability there; `min` and `product` that of all decisions of the row so far. The
            first history, of the prompt alone, has no step yet and counts for itself only.

    Raises:
        ModelError: the model reads its scores at a marker that a policy does not write.
    """

    def __init__(
        self, process: ProcessModel, *, low: float = 0.0, high: float = 1.0, aggregate: Aggregate = "last"
    ) -> None:
        layout = process.record.layout
        if layout.marker or layout.turns:
            raise ModelError(
                f"{process.name} is read at {layout.marker or 'turns of its own'!r} after every step, which a policy "
                "does not write, so it cannot judge its histories. Train one that is read at the steps themselves: "
                "prefrl prm --steps.marker ''"
            )
        self.process, self.low, self.high, self.aggregate = process, low, high, aggregate

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.process.module

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return self.process.shares_prompts

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """V of the history before every masked-in token, laid end to end (N,), with gradient."""
        odds = self.process.token_outputs([_at_the_last_token(row) for row in rows])
        log_p = nn.functional.logsigmoid(odds if odds.device.type == "mps" else odds.double())
        parts = log_p.split([sum(row.mask) for row in rows])
        joined = torch.cat([*_aggregated(parts, self.aggregate)]) if parts else log_p
        return self.low + (self.high - self.low) * joined.exp()

    def save(self, folder: str | Path) -> None:
        """Write the process model as it is now, all or nothing."""
        self.process.save(folder)


def trained_judge(
    policy: LanguageModel, base: str, reading: Reading, optim: ModelConfig
) -> ProcessValues | ValueModel | None:
    """The critic that a trained reward model or process reward model is from the start; None for any other base.

    Of a process model `optim.top_layers` are trained, and the head; a reward model is trained as it was saved.

    Raises:
        ModelError: it has another tokenizer than the policy, or reads what a policy does not write.
    """
    final = Path(base) / "checkpoints" / "final"
    where = resolve(str(final if final.is_dir() else base)) if base else ""
    if not Path(where).is_dir() or not where:
        return None
    if read_process_record(where) is not None:
        process = load_process_model(where, dtype=optim.dtype, device=optim.device)
        check_tokens(policy.tokenizer, process.tokenizer, base)
        if optim.top_layers:
            freeze_below(process.module, process.carrier.decoder, optim.top_layers)
            for parameter in process.head_parameters:
                parameter.requires_grad_(True)
        return ProcessValues(process, low=reading.low, high=reading.high, aggregate=reading.aggregate)
    if read_record(where) is None:
        return None
    model = load_value_model(where, dtype=optim.dtype, device=optim.device)
    check_tokens(policy.tokenizer, model.scorer.tokenizer, base)
    return model


def check_tokens(ours: Any, theirs: Any, base: str) -> None:
    """Refuse a critic that reads other tokens than the policy writes.

    Raises:
        ModelError: the vocabularies differ.
    """
    if ours.get_vocab() != theirs.get_vocab():
        raise ModelError(
            f"The critic's base {base} has another vocabulary than the policy, whose token ids it is to read. Name one "
            "that was trained from the policy, or from a model of the same family."
        )


def _last(mask: Sequence[bool]) -> int:
    """Place of the last masked-in token; 0 without one."""
    return max((i for i, masked in enumerate(mask) if masked), default=0)


def _at_the_last_token(row: Row) -> Row:
    """The row in which the token before each masked-in one is masked in."""
    return Row(
        prompt_ids=row.prompt_ids[:-1],
        completion_ids=(*row.prompt_ids[-1:], *row.completion_ids[:-1]),
        mask=row.mask,
    )


def _aggregated(parts: Sequence[Tensor], aggregate: Aggregate) -> Iterator[Tensor]:
    """Log-probabilities of each history of each row, of all its steps together."""
    for own in parts:
        if aggregate == "last":
            yield own
        elif aggregate == "min":
            yield torch.cat([own[:1], own[1:].cummin(0).values])
        else:
            yield torch.cat([own[:1], own[1:].cumsum(0)])
