"""Tiny models and tokenizers made from nothing, shared by the tests."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from prefrl.model.language import LanguageModel
from prefrl.types import Prompt, Rollout, Row, StopReason

SYMBOLS = ("<eos>", "<pad>", "=", *"0123456789", ",")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def digit_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character over digits, `=` and `,`."""
    tokenizer = Tokenizer(models.WordLevel({s: i for i, s in enumerate(SYMBOLS)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")


def byte_tokenizer(chat_template: str | None = CHAT) -> PreTrainedTokenizerFast:
    """One token a byte, ChatML markers as single tokens, `<|im_end|>` as end of turn and padding."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate([*specials, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=chat_template,
    )


def character_tokenizer() -> PreTrainedTokenizerFast:
    """Characters between [CLS] and [SEP], as an encoder's: without EOS and without a chat template."""
    symbols = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyzUA:?\n 2,.")
    core = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def moved(model: Any, size: float = 0.1) -> Any:
    """A reward model, or an ensemble, whose trained weights were moved: a round trip has something to lose."""
    generator = torch.Generator().manual_seed(7)
    for one in getattr(model, "models", [model]):
        one.activate()
        with torch.no_grad():
            for parameter in one.module.parameters():
                if parameter.requires_grad:
                    parameter += size * torch.randn(parameter.shape, generator=generator)
    return model


def llama(vocabulary: int, *, hidden: int = 32, layers: int = 1, seed: int = 0, eos: int = 0, **more: Any) -> Any:
    """A Llama of a few thousand parameters from a seed."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=None,
        **more,
    )
    return LlamaForCausalLM(config).eval()


def rollout(
    ids: tuple[int, ...] = (1, 2, 3),
    *,
    group: str = "g",
    text: str = "",
    prompt_ids: tuple[int, ...] = (5, 6),
    logps: tuple[float, ...] | None = None,
    mask: tuple[bool, ...] | None = None,
    stop: StopReason = StopReason.EOS,
    **columns: Any,
) -> Rollout:
    """A rollout with what a test cares about and plain values elsewhere."""
    return Rollout(
        prompt=Prompt(id=group, text="question", columns=columns),
        prompt_ids=prompt_ids,
        completion_ids=ids,
        mask=mask or (True,) * len(ids),
        logps=logps or (-1.0,) * len(ids),
        text=text,
        stop=stop,
        group=group,
    )


def causal_lm(kind: str, vocabulary: int, *, layers: int = 2, seed: int = 0, **more: Any) -> Any:
    """A causal LM of any architecture, a few thousand parameters from a seed."""
    torch.manual_seed(seed)
    options = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": None,
        **more,
    }
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options)).eval()


def language_model(model: Any = None, **more: Any) -> LanguageModel:
    """A tiny policy over digits; `more` goes to `llama`."""
    tokenizer = digit_tokenizer()
    return LanguageModel(model or llama(len(tokenizer), **more), tokenizer, name="tiny")


def random_rows(groups: dict[int, int], *, longest: int = 9, masked: bool = False, seed: int = 0) -> list[Row]:
    """Ragged rows over digits: `groups` maps the length of a prompt to how many completions it gets."""
    generator = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int, count: int) -> tuple[int, ...]:
        return tuple(torch.randint(low, high, (count,), generator=generator).tolist())

    rows = []
    for length, count in groups.items():
        prompt = ids(2, len(SYMBOLS), length)
        for n in ids(1, longest + 1, count):
            mask = (*(bool(i % 3) for i in range(n - 1)), True) if masked else (True,) * n
            rows.append(Row(prompt_ids=prompt, completion_ids=ids(2, len(SYMBOLS), n), mask=mask))
    return rows


def naive_logps(model: Any, rows: list[Row], *, temperature: float = 1.0, side: str = "right") -> list[Tensor]:
    """What the fast paths must equal: rows padded by hand, the plain model, full logits in float32.

    Returns:
        The log-probs (n,) of every row's completion tokens, masked-out ones included, with gradient.
    """
    width = max(len(row.prompt_ids) + len(row.completion_ids) for row in rows)
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    spans = []
    for i, row in enumerate(rows):
        whole = (*row.prompt_ids, *row.completion_ids)
        start = 0 if side == "right" else width - len(whole)
        ids[i, start : start + len(whole)] = torch.tensor(whole)
        mask[i, start : start + len(whole)] = 1
        spans.append(slice(start + len(row.prompt_ids), start + len(whole)))
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits.float()
    logps = (logits / temperature).log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
    return [logps[i, span.start - 1 : span.stop - 1] for i, span in enumerate(spans)]


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Gradients by name, taken off the module."""
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


def assert_same_gradients(got: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """Equal up to `tolerance`, relative to the largest entry of any gradient."""
    assert got.keys() == wanted.keys() and wanted
    scale = max(float(g.abs().max()) for g in wanted.values())
    assert scale > 0
    for name in wanted:
        torch.testing.assert_close(
            got[name], wanted[name], atol=tolerance * scale, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )
