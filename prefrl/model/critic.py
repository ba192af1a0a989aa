"""Critics: V(h_t), the value of the history before token t, for language models and control policies.

Whatever a critic is attached to, it is an engine around a trainable whose output at a masked-in token is the value
of what came *before* that token: the position at which the policy's log-prob of the token is read. The value after
the last token is that before a further one, so a row with any token appended gives it too.

    separate  a network of its own: a causal LM with a scalar head, or an MLP over observations
    head      a linear map of the policy's last hidden states, which get no gradient from it
    lora      a second set of the policy's LoRA weights, on the same frozen base, and a linear map
    yes       a language model that is asked whether the history will succeed

A separate network may start from a trained reward model or process reward model in place of a causal LM.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call

from prefrl.config import ModelConfig
from prefrl.errors import ModelError, did_you_mean
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.control import ControlPolicy, seen, zero
from prefrl.model.engine import Engine, Trainable
from prefrl.model.language import LanguageModel
from prefrl.model.recurrent import through
from prefrl.model.value_model import ValueModel, copied_value_model, load_value_model, new_value_model
from prefrl.model.yes_values import Reading, check_tokens, trained_judge, yes_values
from prefrl.types import Objective, Row

__all__ = [
    "Critic",
    "Reading",
    "ValueAdapter",
    "ValueHead",
    "ValueModel",
    "copied_value_model",
    "load_value_model",
    "make_critic",
    "new_value_model",
]

HEAD_FILE = "value_head.safetensors"


@runtime_checkable
class HasFigures(Protocol):
    """A trainable that has something to report beside its loss."""

    def figures(self) -> dict[str, float]:
        """What it was like at the last step, by name."""
        ...


class Critic:
    """Values of histories, and how they are learnt.

    Args:
        actor: its output at a token is the value of the history before it.
        optim: how it is trained; only its training settings are read.
        total_steps: updates of the whole run, for the learning-rate schedule.
    """

    def __init__(self, actor: Trainable, optim: ModelConfig, *, total_steps: int = 1) -> None:
        self.engine = Engine(actor, optim, total_steps=total_steps)

    def values(self, rows: Sequence[Row]) -> list[Tensor]:
        """V (n,) before each token of every row, without gradient, in the order given; 0 where the mask is False."""
        return self.engine.outputs(rows)

    def step(self, rows: Sequence[Row], objective: Objective) -> dict[str, float]:
        """One update on the sum of `objective` over all rows; `batch.outputs` are the values."""
        metrics = self.engine.step(rows, objective)
        actor = self.engine.actor
        return metrics | (actor.figures() if isinstance(actor, HasFigures) else {})

    def total(self, local: Tensor) -> Tensor:
        """Sum of a tensor over all processes."""
        return self.engine.total(local)

    def save(self, folder: str | Path) -> None:
        """Write the critic's own weights, none of the policy's; only the main process does."""
        self.engine.save(folder)


class ValueHead:
    """A small network on states that are there already: hidden states of a policy, or observations.

    The states are computed without gradient, so that no loss of values reaches what computes them.

    Args:
        module: from states (N, d) to values (N, 1).
        states: from rows to the state before every masked-in token (N, d).
        shares_prompts: whether `states` computes a prompt once for all its rows.
    """

    def __init__(
        self, module: nn.Module, states: Callable[[Sequence[Row]], Tensor], *, shares_prompts: bool = False
    ) -> None:
        self.module = module
        self.states = states
        self.shares_prompts = shares_prompts

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """V of the history before every masked-in token, laid end to end (N,), with gradient to `module` alone."""
        with torch.no_grad():
            states = self.states(rows)
        parameter = next(self.module.parameters())
        values: Tensor = self.module(states.to(parameter.device, parameter.dtype))
        return values.squeeze(-1)

    def save(self, folder: str | Path) -> None:
        """Write the weights of `module` as safetensors, all or nothing."""
        with atomic_folder(folder) as scratch:
            save_file(self.module.state_dict(), scratch / HEAD_FILE)

    def load(self, folder: str | Path) -> None:
        """Take over the weights of a saved head; ModelError if they are not there or of another shape."""
        _copy_weights(self.module.state_dict(), Path(folder) / HEAD_FILE)


class ValueAdapter:
    """A second set of a policy's LoRA weights, on the same frozen base, with a linear head at 0.

    It begins as a copy of the policy's adapter. While values are computed these weights stand in for the policy's in
    the call itself: the policy's modules, their flags and their gradients are never touched, whatever is raised.

    Raises:
        ModelError: the policy has no adapter.
    """

    def __init__(self, policy: LanguageModel) -> None:
        trained = {id(p) for p in policy.decoder.parameters() if p.requires_grad}
        adapter = {name: p for name, p in policy.module.named_parameters() if id(p) in trained}
        if not hasattr(policy.model, "peft_config") or not adapter:
            raise ModelError(
                f"{policy.name} has no LoRA adapter; the critic 'lora' shares the frozen base of one. "
                "Set policy.lora to a rank such as 16, or choose the critic 'head' or 'separate'."
            )
        self._policy = policy
        self._states = _States(policy)
        self._names = list(adapter)
        self._weights = nn.ParameterList([p.detach().clone() for p in adapter.values()])
        self._head = _linear(policy)
        self.module = nn.ModuleDict({"adapter": self._weights, "head": self._head})

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all its rows."""
        return self._policy.shares_prompts

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """V of the history before every masked-in token, laid end to end (N,), with gradient.

        Raises:
            ModelError: activations are checkpointed; their second computation would use the policy's weights.
        """
        decoder = self._policy.decoder
        if decoder.training and decoder.is_activation_checkpointing:
            raise ModelError(
                "The critic 'lora' cannot be trained with activation checkpointing. Call "
                "policy.model.activation_checkpointing_disable(), or choose the critic 'head' or 'separate'."
            )
        weights = {f"model.{name}": weight for name, weight in zip(self._names, self._weights, strict=True)}
        hidden = functional_call(self._states, weights, (rows,))
        values: Tensor = self._head(hidden.to(self._head.weight.dtype))
        return values.squeeze(-1)

    def save(self, folder: str | Path) -> None:
        """Write the value adapter in the layout of peft, and the head, all or nothing."""
        config = copy.deepcopy(self._policy.model.active_peft_config)
        config.inference_mode = True
        with atomic_folder(folder) as scratch:
            save_file(self._adapter_state(), scratch / "adapter_model.safetensors")
            config.save_pretrained(scratch)
            save_file(self._head.state_dict(), scratch / HEAD_FILE)

    def load(self, folder: str | Path) -> None:
        """Take over the weights of a saved adapter; ModelError if they are not there or of another shape."""
        _copy_weights(self._adapter_state(), Path(folder) / "adapter_model.safetensors")
        _copy_weights(self._head.state_dict(), Path(folder) / HEAD_FILE)

    def _adapter_state(self) -> dict[str, Tensor]:
        """The value adapter's weights under the names that peft saves an adapter's weights by."""
        from peft import get_peft_model_state_dict

        model = self._policy.model
        own = {name: weight.data for name, weight in zip(self._names, self._weights, strict=True)}
        state: dict[str, Tensor] = get_peft_model_state_dict(
            model, state_dict=own, adapter_name=model.active_adapter, save_embedding_layers=False
        )
        return state


class _States(nn.Module):
    """A policy's hidden states by a call of a module, so that other weights can stand in for its own in that call."""

    def __init__(self, policy: LanguageModel) -> None:
        super().__init__()
        self.model = policy.module
        self._hidden = policy.hidden

    def forward(self, rows: Sequence[Row]) -> Tensor:
        return self._hidden(rows)


def make_critic(
    kind: str,
    policy: object,
    *,
    lr: float,
    base: str = "",
    optim: ModelConfig | None = None,
    total_steps: int = 1,
    seed: int = 0,
    reading: Reading | None = None,
) -> Critic:
    """The critic of a policy; its first values are all 0, unless it starts from a model that was trained to judge.

    Args:
        kind: `separate`, `head`, or for a LoRA policy `lora`, and `yes`.
        policy: a language model or a control policy.
        lr: the critic's own learning rate.
        base: of a separate network for a language model: a hub id or folder. Empty copies the policy's body, unless
            `optim.lora` asks for an adapter, whose base is then loaded by the policy's name. A trained reward model
            keeps its head, and its scores are the first values; a process reward model's are its probabilities on the
            scale of returns. Of `yes`: a language model, or what `prefrl yes` trained; empty copies the policy.
        optim: all other settings; `lora`, `top_layers`, `dtype` and `device` are those of a separate network.
        total_steps: updates of the whole run, for the learning-rate schedule.
        seed: of an initialisation.
        reading: how probabilities become values, for kinds that have them.

    Raises:
        ModelError: the policy cannot have such a critic.
    """
    kinds = _kinds(policy)
    if kind not in kinds:
        raise ModelError(
            f"The critic is {kind!r}; valid for a {type(policy).__name__}: {', '.join(kinds)}."
            f"{did_you_mean(kind, kinds)}"
        )
    settings = replace(optim or ModelConfig(), lr=lr)
    with torch.random.fork_rng(devices=[]):  # all weights are drawn on the CPU
        torch.default_generator.manual_seed(seed)
        actor = kinds[kind](_Made(base, settings, seed, reading or Reading()))
    return Critic(actor, settings, total_steps=total_steps)


@dataclass(frozen=True, slots=True)
class _Made:
    """What a critic is made from."""

    base: str
    optim: ModelConfig
    seed: int
    reading: Reading


Build: TypeAlias = Callable[[_Made], Trainable]


@singledispatch
def _kinds(policy: object) -> Mapping[str, Build]:
    """The critics that a policy can have, by kind."""
    raise ModelError(f"No critic is known for a {type(policy).__name__}; expected a LanguageModel or a ControlPolicy.")


@_kinds.register(LanguageModel)
def _(policy: LanguageModel) -> Mapping[str, Build]:
    def separate(made: _Made) -> Trainable:
        optim = made.optim
        if not made.base and not optim.lora:
            return copied_value_model(policy, top_layers=optim.top_layers)
        if (trained := trained_judge(policy, made.base, made.reading, optim)) is not None:
            return trained
        fresh = new_value_model(
            made.base or policy.name,
            lora=optim.lora,
            top_layers=optim.top_layers,
            dtype=optim.dtype,
            device=optim.device,
            seed=made.seed,
        )
        check_tokens(policy.tokenizer, fresh.scorer.tokenizer, made.base or policy.name)
        return fresh

    return {
        "separate": separate,
        "head": lambda *_: ValueHead(_linear(policy), policy.hidden, shares_prompts=policy.shares_prompts),
        "lora": lambda *_: ValueAdapter(policy),
        "yes": lambda made: yes_values(policy, made.base, made.reading, made.optim, made.seed),
    }


class ControlValues(ValueHead):
    """A network of its own on observations or, beside a policy with a memory, on all that was seen and done."""

    def __init__(self, policy: ControlPolicy) -> None:
        super().__init__(policy.value_net(), seen)
        self._encode = policy.distribution_of.encode

    def token_outputs(self, rows: Sequence[Row], temperature: float = 1.0) -> Tensor:
        """V of the history before every masked-in action, laid end to end (N,), with gradient."""
        return through(self.module, rows, self._encode).squeeze(-1)


@_kinds.register(ControlPolicy)
def _(policy: ControlPolicy) -> Mapping[str, Build]:
    return {
        "separate": lambda *_: ControlValues(policy),
        "head": lambda *_: ValueHead(zero(nn.Linear(policy.state_size, 1)).to(_device(policy)), policy.row_states),
    }


def _linear(policy: LanguageModel) -> nn.Linear:
    """A linear head at 0, in float32, for the hidden states of a language model."""
    return zero(nn.Linear(policy.decoder.config.hidden_size, 1)).to(_device(policy))


def _device(policy: Trainable) -> torch.device:
    return next(policy.module.parameters()).device


def _copy_weights(into: Mapping[str, Tensor], file: Path) -> None:
    """Fill the given tensors from a safetensors file that holds just these."""
    try:
        found = load_file(file)
    except Exception as error:  # missing and damaged files have exceptions of several libraries
        raise ModelError(
            f"No critic can be read from {file}: {error}. Name a folder that a critic was saved to."
        ) from error
    shapes = {name: tuple(tensor.shape) for name, tensor in into.items()}
    if {name: tuple(tensor.shape) for name, tensor in found.items()} != shapes:
        raise ModelError(
            f"{file} holds other weights than those of this critic, {len(shapes)} tensors. "
            "Load what the same kind of critic on the same policy has saved."
        )
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(found[name])
