"""Small models of random weights, for tasks that are learnt within seconds and experiments that start from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from prefrl.errors import ConfigError
from prefrl.model.language import LanguageModel


def small_model(
    words: Sequence[str],
    *,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    spread: float = 0.1,
    seed: int = 0,
) -> LanguageModel:
    """A Llama of random weights that reads and writes one token a word.

    Args:
        words: all that can be said, without white space; the first one is the end of a turn, and every other word of a
            text is read as it.
        width: of a state; the inner layers are twice as wide.
        layers: how many.
        heads: of attention, of `width / heads` numbers each.
        spread: standard deviation of the weights. The usual .02 is made for far wider models: at these widths a task
            that takes several words at once, such as a sum, would not get started.
        seed: of the weights.

    Raises:
        ConfigError: no words, a word that is there twice or has white space in it, or a width that the heads cannot
            share.
    """
    if not words or len({word for word in words if word.split() == [word]}) < len(words):
        raise ConfigError(
            f"words {list(words)!r}; expected different ones without white space, the end of a turn first"
        )
    if width % (2 * heads):
        raise ConfigError(f"{heads} heads for a width of {width}; expected a width that is a multiple of {2 * heads}")
    core = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token=words[0]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        bos_token_id=None,
        eos_token_id=0,
        initializer_range=spread,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=words[0], unk_token=words[0])
    return LanguageModel(model.eval(), tokenizer, name="small")
