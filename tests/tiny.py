"""Tiny models and tokenizers made from nothing, shared by the tests."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from prefrl.types import Prompt, Rollout, StopReason

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
