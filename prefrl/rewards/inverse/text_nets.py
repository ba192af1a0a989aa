"""Reward nets for text: small heads on the hidden states of a language model, frozen or with an adapter of its own.

A completion y of n tokens after a prompt x has n + 1 states: s_0 after the prompt, s_t after token t. All numbers that
the heads give are in units of log-odds; a reward is `beta` times that (docs/inverse/text.md).

    sequence  u(x, y), one number, of the mean of s_1 .. s_n and of s_n; c(x) of s_0
    token     f_t = g(s_t) + gamma h(s_t) - h(s_{t-1}), with h = 0 after the last token of a completion that ended
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from prefrl.errors import ModelError
from prefrl.model.batching import row_outputs
from prefrl.model.language import LanguageModel
from prefrl.model.load import add_lora, is_adapter, load_tokenizer, pick_device, pick_dtype, pretrained, resolve
from prefrl.model.networks import last_linear, mlp, zero
from prefrl.model.teacher import Teacher
from prefrl.types import Row

Level = Literal["sequence", "token"]
SCALE_FLOOR = 0.05  # of the typical deviation: a feature that hardly varies must not become a loud one


class Body(Protocol):
    """What computes hidden states; a `LanguageModel` and a `Teacher` both do."""

    def hidden(self, rows: Sequence[Row]) -> Tensor:
        """Final hidden states (N, H) that predict the rows' masked-in tokens, laid end to end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBody:
    """The language model below the heads.

    body            computes the states
    tokenizer       its tokenizer
    ends            ids of the tokens that end a completion
    size            H, numbers of a state
    base            the model it is made from, by name, to make it again
    layers          hidden layers kept of it; 0 for all
    lora            rank of the adapter that is trained with the heads; 0 for a frozen body
    shares_prompts  whether a prompt is computed once for all its rows
    trained         the parameters that are trained with the heads, by name
    """

    body: Body
    tokenizer: Any
    ends: tuple[int, ...]
    size: int
    base: str
    layers: int = 0
    lora: int = 0
    shares_prompts: bool = False
    trained: dict[str, nn.Parameter]

    @torch.no_grad()
    def states(self, rows: Sequence[Row], token_budget: int) -> list[Tensor]:
        """States (n + 1, H) of every row's prompt and completion tokens, in float32, without gradient."""
        extended = [_extended(row) for row in rows]
        return row_outputs(extended, self.body.hidden, token_budget, shared=self.shares_prompts)

    def live_states(self, rows: Sequence[Row]) -> list[Tensor]:
        """The same with gradient to the adapter, all rows in one micro-batch."""
        hidden = self.body.hidden([_extended(row) for row in rows]).float()
        return list(hidden.split([len(row.completion_ids) + 1 for row in rows]))


def _extended(row: Row) -> Row:
    """The row with one more token, never looked at: the state that predicts a token is that after the one before."""
    ids = (*row.completion_ids, 0)
    return replace(row, completion_ids=ids, mask=(True,) * len(ids), streams={})


def shared_body(policy: LanguageModel) -> TextBody:
    """The frozen base below a LoRA policy, at no memory: its adapter is switched off while states are computed.

    Raises:
        ModelError: the policy has no adapter, or trains more than adapters below its output head.
    """
    return TextBody(
        body=Teacher.base(policy),
        tokenizer=policy.tokenizer,
        ends=policy.eos,
        size=_size(policy),
        base=base_name(policy),
        shares_prompts=policy.shares_prompts,
        trained={},
    )


def own_body(
    base: str, *, lora: int = 0, layers: int = 0, dtype: str = "auto", device: str = "auto", seed: int = 0
) -> TextBody:
    """A model of its own, frozen or with a fresh adapter, of which the first `layers` are kept (0: all).

    Raises:
        ModelError: the base cannot be loaded.
    """
    from transformers import AutoModelForCausalLM

    where, place = resolve(base), pick_device(device)
    options: dict[str, Any] = {"num_hidden_layers": layers} if layers else {}
    model: Any = pretrained(AutoModelForCausalLM, where, base, dtype=pick_dtype(dtype, place, frozen=True), **options)
    model.requires_grad_(False)
    if lora:
        model = add_lora(model, lora, seed)
    return body_of(LanguageModel(model.to(place).eval(), load_tokenizer(base), name=base), lora=lora, layers=layers)


def body_of(model: LanguageModel, *, lora: int = 0, layers: int = 0) -> TextBody:
    """A language model as a body; what of it requires a gradient is trained with the heads."""
    return TextBody(
        body=model,
        tokenizer=model.tokenizer,
        ends=model.eos,
        size=_size(model),
        base=model.name,
        layers=layers,
        lora=lora,
        shares_prompts=model.shares_prompts,
        trained={name: p for name, p in model.module.named_parameters() if p.requires_grad},
    )


def base_name(policy: LanguageModel) -> str:
    """The name of the model below a policy's adapter, or of the policy itself."""
    adapters: dict[str, Any] = getattr(policy.model, "peft_config", {})
    if adapters and is_adapter(policy.name):
        return str(next(iter(adapters.values())).base_model_name_or_path)
    return policy.name


def _size(model: LanguageModel) -> int:
    return int(model.decoder.config.hidden_size)


class TextNet(nn.Module):
    """The heads: a reward head, and a value head that is c(x) of a sequence or h(s) of a token.

    Both start at 0: every reward is 0 and, as the policy starts at its reference, a discriminator says 1/2.

    Args:
        size: H, numbers of a hidden state.
        level: one reward a completion, or one a token.
        hidden: units of the hidden layers of both heads; none is a linear map.
        gamma: discount of h(s_t) at the token level.
        seed: of the hidden layers.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int, *, level: Level, hidden: Sequence[int] = (), gamma: float = 1.0, seed: int = 0):
        super().__init__()
        self.level: Level = level
        self.hidden, self.gamma = tuple(hidden), gamma
        self.reward = _head(2 * size if level == "sequence" else size, hidden, seed)
        self.value = _head(size, hidden, seed + 1)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    @torch.no_grad()
    def fit(self, states: Sequence[Tensor]) -> None:
        """Take mean and deviation of every number of a state from these (each (n + 1, H)), once and for all."""
        flat = torch.cat(list(states)).to(self.mean.device)
        deviation = flat.std(0, unbiased=False)
        self.mean.copy_(flat.mean(0))
        self.scale.copy_(deviation.clamp(min=max(SCALE_FLOOR * float(deviation.mean()), 1e-6)))

    def features(self, states: Tensor) -> Tensor:
        """What the heads read of the states (n + 1, H): (3, H) of s_0, the mean of the others and the last; or all."""
        if self.level == "token":
            return states
        after = states[1:] if len(states) > 1 else states
        return torch.stack([states[0], after.mean(0), states[-1]])

    def forward(self, features: Sequence[Tensor], terminated: Sequence[bool]) -> tuple[Tensor, Tensor]:
        """The reward and what the discriminator sees of it, in log-odds, laid end to end.

        Args:
            features: of every completion, as `features` gives them.
            terminated: whether it ended by itself; h of what was cut off stays.

        Returns:
            (B,) u and u - c(x) at the level of a sequence; (N,) g_t and f_t of all tokens at that of a token.
        """
        if self.level == "sequence":
            stacked = self._normal(torch.stack(list(features)))
            plain = self.reward(stacked[:, 1:].flatten(1)).squeeze(-1)
            return plain, plain - self.value(stacked[:, 0]).squeeze(-1)
        lengths = [len(f) for f in features]
        flat = self._normal(torch.cat(list(features)))
        first, last = _ends(lengths, flat.device)
        g, h = self.reward(flat).squeeze(-1), self.value(flat).squeeze(-1)
        ended = torch.zeros_like(last)
        ended[last] = torch.tensor(list(terminated), device=flat.device)
        after = torch.where(ended, 0.0, h)[~first]
        plain = g[~first]
        return plain, plain + self.gamma * after - h[~last]

    def _normal(self, features: Tensor) -> Tensor:
        return (features.to(self.mean.device, self.mean.dtype) - self.mean) / self.scale


def _ends(lengths: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """(N,) whether a state is the first, or the last, of its completion."""
    ends = torch.tensor(lengths, device=device).cumsum(0)
    first = torch.zeros(sum(lengths), dtype=torch.bool, device=device)
    last = first.clone()
    first[ends - torch.tensor(lengths, device=device)] = True
    last[ends - 1] = True
    return first, last


def _head(inputs: int, hidden: Sequence[int], seed: int) -> nn.Sequential:
    """A network whose output starts at 0, and whose hidden layers depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = mlp(inputs, 1, hidden)
    zero(last_linear(head))
    return head


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """Heads and the body below them.

    token_budget  most token positions computed at a time
    """

    net: TextNet
    body: TextBody
    token_budget: int = 4096

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All that is trained."""
        return [*self.net.parameters(), *self.body.trained.values()]

    def features(self, rows: Sequence[Row]) -> list[Tensor]:
        """What the heads read of every row, without gradient."""
        return [self.net.features(s) for s in self.body.states(rows, self.token_budget)]

    @torch.no_grad()
    def rewards(self, rows: Sequence[Row], terminated: Sequence[bool]) -> tuple[list[Tensor], list[Tensor]]:
        """The reward, and the reward with potential or offset, of every row in log-odds: (1,) or (n,) each."""
        if not rows:
            return [], []
        found = self.net(self.features(rows), terminated)
        counts = [self.elements(row) for row in rows]
        plain, shaped = (flat.float().cpu().split(counts) for flat in found)
        return list(plain), list(shaped)

    def elements(self, row: Row) -> int:
        """How many numbers a row gets: 1, or one a token."""
        return 1 if self.net.level == "sequence" else len(row.completion_ids)


def check_tokenizer(body: TextBody, tokenizer: Any, name: str) -> None:
    """Make sure that a body reads the token ids that a policy writes.

    Raises:
        ModelError: the vocabularies differ.
    """
    if body.tokenizer is not tokenizer and body.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise ModelError(
            f"The reward's body {body.base} has another vocabulary than the policy {name}, whose token ids it reads. "
            "Take a model of the policy's own family, or leave the body out to use the policy's."
        )
