"""Tokenizers and stand-ins for the tests of process rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from prefrl.data.steps import split_steps

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>")
PLAIN = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
CHAT = PLAIN + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, but `.\\n\\n` and `\\n\\n` are one each: a separator fuses with the end of a sentence."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fused = ["\u010a\u010a", ".\u010a\u010a"]  # the byte of a newline is written so
    vocabulary = {s: i for i, s in enumerate([*SPECIALS, *alphabet, *fused])}
    merges = [("\u010a", "\u010a"), (".", "\u010a\u010a")]
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIALS))
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        additional_special_tokens=["<extra_0>"],
        chat_template=CHAT,
    )


class Judge:
    """Scores steps by a function of their text and index; cuts texts after `separator`."""

    def __init__(self, score: Callable[[int, str], float], separator: str = "\n\n", most: float = math.inf) -> None:
        self.score, self.separator, self.most = score, separator, most
        self.asked: list[tuple[str, ...]] = []

    def split(self, text: str) -> Sequence[str]:
        return split_steps(text, self.separator)

    def step_probabilities(self, solutions):
        self.asked += [tuple(one.steps) for one in solutions]
        found = [[self.score(at, step) for at, step in enumerate(one.steps)] for one in solutions]
        return [own[: int(min(self.most, len(own)))] for own in found]
