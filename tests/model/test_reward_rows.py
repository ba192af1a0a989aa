"""Rows that are too long lose the oldest of their prompt, never of their completion, whatever stands beside them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tiny import byte_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from prefrl.data.chat import eos_ids, render_prompt
from prefrl.errors import DataError
from prefrl.model.reward_rows import add_plain_template, encode_row
from prefrl.types import Completion, Prompt

SYSTEM = {"role": "system", "content": "be kind"}
TALK = tuple(
    {"role": role, "content": text}
    for role, text in (
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
        ("assistant", "four"),
        ("user", "five"),
    )
)


def character_tokenizer():
    """Characters between [CLS] and [SEP], without a chat template: an encoder's."""
    symbols = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyzUA:?\n ")
    core = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
    )


def row(prompt, text, limit=0, tokenizer=None, *, finished=True):
    tokenizer = tokenizer or byte_tokenizer()
    completion = Completion(text=text, finished=finished)
    return encode_row(tokenizer, prompt, completion, ends=eos_ids(None, tokenizer), limit=limit)


def ids(tokenizer, text):
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_the_plain_template():
    tokenizer = character_tokenizer()
    add_plain_template(tokenizer)
    text = "[CLS]User: one\n\nAssistant: two\n\nUser: three\n\nAssistant:"
    assert render_prompt(tokenizer, Prompt(id="a", messages=TALK[:3])) == text
    got, cut = row(Prompt(id="a", messages=TALK[:3]), " yes ", tokenizer=tokenizer)
    assert got.prompt_ids == ids(tokenizer, text)
    assert got.completion_ids == (*ids(tokenizer, " yes"), 3)
    assert not cut
    continued = Prompt(id="a", messages=TALK[:2])
    assert render_prompt(tokenizer, continued) == "[CLS]User: one\n\nAssistant: two"
    assert row(continued, "fold", tokenizer=tokenizer)[0].completion_ids == (*ids(tokenizer, "fold"), 3)


def test_the_plain_template_starts_as_the_tokenizer_does():
    without = byte_tokenizer(chat_template=None)  # it has a BOS token, but writes none before a text
    add_plain_template(without)
    assert render_prompt(without, Prompt(id="a", messages=TALK[:1])) == "User: one\n\nAssistant:"
    assert row(Prompt(id="a", messages=TALK[:1]), "x", tokenizer=without)[0].completion_ids[-1] == without.eos_token_id
    own = byte_tokenizer()
    template = own.chat_template
    add_plain_template(own)
    assert own.chat_template == template


def test_the_plain_template_refuses_what_it_cannot_show():
    tokenizer = character_tokenizer()
    add_plain_template(tokenizer)
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}
    with pytest.raises(DataError, match="the plain template shows texts only, no tool calls"):
        row(Prompt(id="a", messages=(TALK[0], call, TALK[2])), "x", tokenizer=tokenizer)


def test_the_oldest_messages_go_first_and_a_system_message_stays():
    for kept, longer in pairwise(((SYSTEM, TALK[4]), (SYSTEM, *TALK[2:]), (SYSTEM, *TALK))):
        wanted, _ = row(Prompt(id="a", messages=kept), "six")
        limit = len(wanted.prompt_ids) + len(wanted.completion_ids)
        full, _ = row(Prompt(id="a", messages=longer), "six")
        for within in (limit, len(full.prompt_ids) + len(full.completion_ids) - 1):
            assert row(Prompt(id="a", messages=(SYSTEM, *TALK)), "six", within) == (wanted, True)


def test_then_the_beginning_of_the_prompt():
    tokenizer = byte_tokenizer()
    whole, _ = row(Prompt(id="a", messages=(TALK[4],)), "six")
    bos = (tokenizer.bos_token_id,)
    assert whole.prompt_ids[:1] == bos
    got, cut = row(Prompt(id="a", messages=TALK), "six", 12)
    assert cut and got.completion_ids == whole.completion_ids == (*ids(tokenizer, "six"), 2)
    assert got.prompt_ids == (*bos, *whole.prompt_ids[-7:])  # 12 tokens: 1 BOS, 7, and 4 of the completion
    assert row(Prompt(id="a", messages=TALK), "six", 5)[0].prompt_ids == bos


def test_a_plain_text_loses_its_beginning():
    got, cut = row(Prompt(id="a", text="abcdef"), "xy", 5)
    assert cut and got.prompt_ids == ids(byte_tokenizer(), "ef")
    encoder = character_tokenizer()
    assert row(Prompt(id="a", text="abcdef"), "xy", 6, encoder)[0].prompt_ids == (2, *ids(encoder, "ef"))


def test_a_row_that_fits_is_left_alone():
    prompt = Prompt(id="a", messages=TALK)
    whole, cut = row(prompt, "six")
    size = len(whole.prompt_ids) + len(whole.completion_ids)
    assert not cut and row(prompt, "six", size) == (whole, False) != row(prompt, "six", size - 1)


def test_a_completion_is_never_cut():
    prompt = Prompt(id="a", messages=TALK)
    assert row(prompt, "x" * 20, 21) == row(prompt, "x" * 20)  # 21 tokens of completion leave no room
    got, cut = row(prompt, "x" * 20, 22)
    assert cut and len(got.prompt_ids) == 1 and len(got.completion_ids) == 21


def test_an_answer_cut_off_before_it_began():
    got, cut = row(Prompt(id="a", text="abcdef"), "", 3, finished=False)
    assert cut and got.prompt_ids + got.completion_ids == ids(byte_tokenizer(), "def")
    assert got.mask == (True,)
