"""Critics: V(h_t), the value of the history before token t, for language models and control policies.

Whatever a critic is attached to, it is an engine around a trainable whose output at a masked-in token is the value
of what came *before* that token: the position at which the policy's log-prob of the token is read. The value after
the last token is that before a further one, so a row with any token appended gives it too.

    separate  a network of its own: a causal LM with a scalar head, or an MLP over observations
    head      a linear map of the policy's last hidden states, which get no gradient from it
    lora      a second set of the policy's LoRA weights, on the same frozen base, and a linear map
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call

from prefrl.config import ModelConfig
from prefrl.errors import ModelError, did_you_mean
from prefrl.model.checkpoint import atomic_folder
from prefrl.model.control import ControlPolicy, last_linear, mlp, seen, zero
from prefrl.model.engine import Engine, Trainable
from prefrl.model.kernel import suffix_hidden
from prefrl.model.language import LanguageModel
from prefrl.model.reward_model import RewardModel, load_reward_model, new_reward_model, with_fresh_head
from prefrl.types import Objective, Row

HEAD_FILE = "value_head.safetensors"


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
        return self.engine.step(rows, objective)

    def total(self, local: Tensor) -> Tensor:
        """Sum of a tensor over all processes."""
        return self.engine.total(local)

    def save(self, folder: str | Path) -> None:
        """Write the critic's own weights, none of the policy's; only the main process does."""
        self.engine.save(folder)


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
) -> Critic:
    """The critic of a policy; its first values are all 0.

    Args:
        kind: `separate`, `head`, or for a LoRA policy `lora`.
        policy: a language model or a control policy.
        lr: the critic's own learning rate.
        base: of a separate network for a language model: a hub id or folder. Empty copies the policy's body, unless
            `optim.lora` asks for an adapter, whose base is then loaded by the policy's name.
        optim: all other settings; `lora`, `top_layers`, `dtype` and `device` are those of a separate network.
        total_steps: updates of the whole run, for the learning-rate schedule.
        seed: of an initialisation.

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
        actor = kinds[kind](base, settings, seed)
    return Critic(actor, settings, total_steps=total_steps)


Build: TypeAlias = Callable[[str, ModelConfig, int], Trainable]


@singledispatch
def _kinds(policy: object) -> Mapping[str, Build]:
    """The critics that a policy can have, by kind, each made from a base, settings and a seed."""
    raise ModelError(f"No critic is known for a {type(policy).__name__}; expected a LanguageModel or a ControlPolicy.")


@_kinds.register(LanguageModel)
def _(policy: LanguageModel) -> Mapping[str, Build]:
    def separate(base: str, optim: ModelConfig, seed: int) -> Trainable:
        if not base and not optim.lora:
            return copied_value_model(policy, top_layers=optim.top_layers)
        return new_value_model(
            base or policy.name,
            lora=optim.lora,
            top_layers=optim.top_layers,
            dtype=optim.dtype,
            device=optim.device,
            seed=seed,
        )

    return {
        "separate": separate,
        "head": lambda *_: ValueHead(_linear(policy), policy.hidden, shares_prompts=policy.shares_prompts),
        "lora": lambda *_: ValueAdapter(policy),
    }


@_kinds.register(ControlPolicy)
def _(policy: ControlPolicy) -> Mapping[str, Build]:
    def separate(base: str, optim: ModelConfig, seed: int) -> Trainable:
        net = mlp(policy.observation_size, 1, hidden=32).to(_device(policy))
        zero(last_linear(net))
        return ValueHead(net, seen)

    return {
        "separate": separate,
        "head": lambda *_: ValueHead(
            zero(nn.Linear(policy.state_size, 1)).to(_device(policy)), lambda rows: policy.states(seen(rows))
        ),
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
