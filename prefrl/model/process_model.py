"""Process reward models: how likely it is that each step of a solution is fine, all steps in one forward pass.

A causal transformer is read at one token of every step, so that a score is one of the prefix: what comes later cannot
change it. Whatever the head is, its output is a log-odds: one logit; the difference of two, whose cross-entropy is the
binary one of that difference; or the difference of the logits of two words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from prefrl.data.steps import split_steps
from prefrl.errors import ModelError
from prefrl.model.batching import row_outputs
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.language import LanguageModel
from prefrl.model.load import (
    is_adapter,
    load_tokenizer,
    pick_device,
    pick_dtype,
    pretrained,
    refuse_unreachable,
    resolve,
)
from prefrl.model.load import load as load_language_model
from prefrl.model.process_record import (
    Head,
    ProcessRecord,
    StepLayout,
    check_prints,
    read_process_record,
    style_record,
)
from prefrl.model.process_rows import StepRow, step_row, token_id
from prefrl.model.reward_head import divide_head, head_fingerprint
from prefrl.model.reward_model import RewardModel, new_reward_model
from prefrl.types import Prompt, Row

TOKEN_BUDGET = 4096  # token positions computed at a time when scoring


class HasSteps(Protocol):
    """A prompt and the texts of a solution's steps; `prefrl.data.steps.Stepped` is one."""

    @property
    def prompt(self) -> Prompt:
        """What was asked."""
        ...

    @property
    def steps(self) -> Sequence[str]:
        """Texts which joined are the solution."""
        ...


class ProcessModel:
    """Scores every step of a solution. Dropout is off throughout.

    Args:
        carrier: the transformer with its tokenizer: a reward model of one or two labels, or a language model.
        record: where its scores are read.

    Attributes:
        cut_steps: steps so far that did not fit into `record.max_tokens` and got no score.

    Raises:
        ModelError: an encoder, in which a later step would change an earlier score.
    """

    def __init__(self, carrier: RewardModel | LanguageModel, record: ProcessRecord) -> None:
        if isinstance(carrier, RewardModel) and not carrier.is_decoder:
            raise ModelError(
                f"{carrier.name} is an encoder, which sees the steps that come after the one it scores. "
                "Name a causal language model, such as smollm2-135m."
            )
        self.carrier = carrier
        self.record = record
        self.head_lr_factor = 1.0
        self.cut_steps = 0
        layout = record.layout
        self._words = [token_id(carrier.tokenizer, w) for w in (layout.bad, layout.good)] if _speaks(record) else []

    @property
    def name(self) -> str:
        """Where it came from."""
        return self.carrier.name

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self.carrier.tokenizer

    @property
    def module(self) -> nn.Module:
        """The module whose parameters are trained."""
        return self.carrier.module

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return self.carrier.shares_prompts

    @property
    def most_tokens(self) -> int:
        """Tokens that the architecture has positions for; 0 where it is not bound to a number."""
        return int(getattr(self.carrier.decoder.config, "max_position_embeddings", None) or 0)

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        """The parameters that start from nothing; none where words of the language model are read."""
        return self.carrier.head_parameters if isinstance(self.carrier, RewardModel) else []

    def head_input_size(self, rows: Sequence[Row]) -> float:
        """Root mean square of what a fresh head reads for these rows; 0 where there is none."""
        return self.carrier.head_input_size(rows) if isinstance(self.carrier, RewardModel) else 0.0

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """Log-odds that a step is fine at every masked-in token, laid end to end (N,), with gradient."""
        if isinstance(self.carrier, RewardModel):
            scores = self.carrier.token_outputs(rows)
            return scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
        hidden = self.carrier.hidden([_ahead(row) for row in rows])
        head: Any = self.carrier.head
        weight, bias = head.weight[self._words], getattr(head, "bias", None)
        logits = nn.functional.linear(hidden, weight, None if bias is None else bias[self._words]).float()
        return (logits[:, 1] - logits[:, 0]) / self.record.temperature

    def split(self, text: str) -> tuple[str, ...]:
        """The steps of a text, by what separates steps of this model's solutions."""
        return split_steps(text, self.record.separator)

    def encode(self, prompt: Prompt, steps: Sequence[str]) -> StepRow:
        """The row of a solution; steps over `record.max_tokens` are cut and counted in `cut_steps`."""
        found = step_row(self.tokenizer, prompt, steps, self.record.layout, limit=self.record.max_tokens)
        self.cut_steps += found.cut
        return found

    def step_log_odds(self, solutions: Sequence[HasSteps]) -> list[list[float]]:
        """Log-odds of every step of each solution; those that did not fit are missing from the end, and counted."""
        rows = [self.encode(solution.prompt, solution.steps).row for solution in solutions]
        fit = [row for row in rows if row.mask]
        found = iter(row_outputs(fit, self.token_outputs, TOKEN_BUDGET, shared=self.shares_prompts))
        return [next(found)[torch.tensor(row.mask)].tolist() if row.mask else [] for row in rows]

    def step_probabilities(self, solutions: Sequence[HasSteps]) -> list[list[float]]:
        """P(step is fine) of every step of each solution; those that did not fit are missing from the end."""
        return [[sigmoid(x) for x in odds] for odds in self.step_log_odds(solutions)]

    def divide(self, temperature: float) -> None:
        """Divide all log-odds by `temperature`: in the weights of a head; in the record where words are read."""
        if isinstance(self.carrier, RewardModel):
            divide_head(self.carrier.output_layer, temperature)
        else:
            self.record = replace(self.record, temperature=self.record.temperature * temperature)

    def fingerprint(self) -> str:
        """What tells its head from others."""
        head: Any = self.carrier.output_layer if isinstance(self.carrier, RewardModel) else self.carrier.head
        return head_fingerprint(head)

    def save(self, folder: str | Path) -> None:
        """Write the weights (adapter and head for LoRA), the tokenizer and the record, all or nothing."""
        with atomic_folder(folder) as scratch:
            self.carrier.model.save_pretrained(scratch)
            self.tokenizer.save_pretrained(scratch)
            self.record.write(scratch, self.tokenizer, self.fingerprint())


def new_process_model(
    base: str,
    *,
    head: Head = "scalar",
    layout: StepLayout | None = None,
    separator: str = "\n\n",
    lora: int = 0,
    top_layers: int = 0,
    layers: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
) -> ProcessModel:
    """A process reward model on any causal LM; a fresh head starts at log-odds of 0, or of about 0 with two classes.

    Args:
        base: a hub id, a local folder, or the embedded default.
        head: scalar, classes or tokens; see `ProcessRecord`.
        layout: where scores are read; `tokens` needs its `good` and `bad`.
        separator: what ends a step of a text.
        lora, top_layers, layers, seed: as of `new_reward_model`.

    Raises:
        ModelError: the base cannot be loaded, is an encoder, or lacks a word that is to be read.
    """
    record = ProcessRecord(head=head, layout=layout or StepLayout(), separator=separator)
    if head == "tokens":
        if layers:
            raise ModelError("A model that answers with words keeps all its layers; set layers to 0.")
        speaker = load_language_model(base, lora=lora, top_layers=top_layers, dtype=dtype, device=device, seed=seed)
        return ProcessModel(speaker, record)
    options: dict[str, Any] = {"lora": lora, "top_layers": top_layers, "layers": layers, "dtype": dtype}
    scorer = new_reward_model(base, heads=_HEADS[head], device=device, seed=seed, **options)
    return ProcessModel(scorer, record)


def load_process_model(path: str, *, style: str = "", dtype: str = "auto", device: str = "auto") -> ProcessModel:
    """A trained process reward model: a run folder, a folder of ours, or a model of others in a known convention.

    Args:
        path: a run folder, a model or adapter folder, or a hub id.
        style: the convention of a model without a record: trl, qwen, math_shepherd or rlhflow; empty tells it by the
            architecture where that is possible.

    Raises:
        ModelError: not a process reward model, damaged, without a trained head, or of an unknown convention.
    """
    final = Path(path) / "checkpoints" / "final"
    where, place = resolve(str(final if final.is_dir() else path)), pick_device(device)
    found = read_process_record(where)
    record, prints = found if found is not None else (style_record(style or _style_of(where)), {})
    if _speaks(record):
        made = ProcessModel(load_language_model(where, dtype=dtype, device=device), record)
    else:
        options: dict[str, Any] = {"dtype": pick_dtype(dtype, place, frozen=True)}
        if is_adapter(where):
            options["num_labels"] = _HEADS[record.head]
        model: Any = pretrained(_classifier(where, record), where, path, **options)
        if model.config.num_labels != _HEADS[record.head]:
            raise ModelError(
                f"{path} has {model.config.num_labels} labels, but its steps are read by {_HEADS[record.head]}. "
                "Name the style it was trained in, or train one with: prefrl prm"
            )
        tokenizer = load_tokenizer(where)
        made = ProcessModel(RewardModel(model.to(place).eval(), tokenizer, name=path), record)
    if prints:
        check_prints(prints, where, made.tokenizer, made.fingerprint())
    return made


_HEADS: dict[str, int] = {"scalar": 1, "classes": 2}
_DEEP = "ForProcessRewardModel"  # ends the name of architectures with a head of two linear layers
_ARCHITECTURES = {_DEEP: "qwen", "ForTokenClassification": "trl"}


def _speaks(record: ProcessRecord) -> bool:
    return record.head == "tokens"


def _architecture(where: str) -> str:
    from transformers import AutoConfig

    if is_adapter(where):
        return ""
    refuse_unreachable(where, where)
    try:
        config = AutoConfig.from_pretrained(where)
    except Exception as error:  # the libraries below have many
        raise ModelError(f"The configuration of {where} cannot be read: {error}") from error
    return str((config.architectures or [""])[0])


def _style_of(where: str) -> str:
    architecture = _architecture(where)
    style = next((style for end, style in _ARCHITECTURES.items() if architecture.endswith(end)), "")
    if not style:
        raise ModelError(
            f"{where} says nothing of where the scores of steps are read ({architecture or 'no architecture'}). Name "
            "its convention: style: trl, qwen, math_shepherd or rlhflow; or train one with: prefrl prm"
        )
    return style


def _classifier(where: str, record: ProcessRecord) -> Any:
    """The class that loads a model with a head."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

    architecture = _architecture(where)
    if architecture.endswith(_DEEP):
        from transformers.models.auto.modeling_auto import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING as known

        return _deep(known[type(AutoConfig.from_pretrained(where))], architecture)
    is_tokens = architecture.endswith("ForTokenClassification")
    return AutoModelForTokenClassification if is_tokens else AutoModelForSequenceClassification


def _deep(plain: Any, name: str) -> Any:
    """The class with a head of two linear layers, as Qwen's process reward models have it, so that no code of the hub
    needs to run."""

    def init(self: Any, config: Any) -> None:
        plain.__init__(self, config)
        size = config.hidden_size
        self.score = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, config.num_labels))

    return type(name, (plain,), {"__init__": init})


def _ahead(row: Row) -> Row:
    """The row whose outputs before its tokens are those at the tokens of the given one."""
    return replace(row, completion_ids=(*row.completion_ids, 0), mask=(False, *row.mask))


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x) without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
