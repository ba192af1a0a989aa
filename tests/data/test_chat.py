from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from prefrl.data.chat import encode_completion, encode_prompt, eos_ids, render_prompt
from prefrl.errors import DataError
from prefrl.types import Completion, Prompt

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
USER = {"role": "user", "content": "Why?"}
ASKED = Prompt(id="asked", messages=(USER,))


def byte_tokenizer(template: str | None = CHATML, **special: str) -> Any:
    """One token a byte, " b" and "bc" merged, and the tokens of ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate([*alphabet, "Ġb", "bc"])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ġ", "b"), ("b", "c")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in CHAT_TOKENS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **(special or {"eos_token": "<|im_end|>"}))
    tokenizer.chat_template = template
    return tokenizer


def bracketed_tokenizer() -> Any:
    """Writes `<s>` before and `</s>` after every text."""
    tokenizer = byte_tokenizer(None, bos_token="<s>", eos_token="</s>")
    bos, eos = tokenizer.convert_tokens_to_ids(["<s>", "</s>"])
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", eos)]
    )
    return tokenizer


def spacing_tokenizer() -> Any:
    """Puts a space before every text, as SentencePiece does."""
    vocabulary = {symbol: i for i, symbol in enumerate(["▁", *"abcdefghi"])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace(prepend_scheme="always")
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")


def tokens(tokenizer: Any, ids: list[int]) -> list[str]:
    return [tokenizer.decode([i]) for i in ids]


@pytest.fixture
def chatml() -> Any:
    return byte_tokenizer()


@pytest.mark.parametrize("answer", ["It is.", "Ünïcode 天", "a\nb ", " bc", "<think>\nno\n</think>\n\nyes", "e", "m"])
def test_prompt_and_completion_decode_to_the_rendered_conversation(chatml: Any, answer: str) -> None:
    messages = ({"role": "system", "content": "Short."}, USER, {"role": "assistant", "content": "b"}, USER)
    prompt = Prompt(id="p", messages=messages)
    ids = encode_prompt(chatml, prompt), encode_completion(chatml, prompt, Completion(text=answer))
    whole = chatml.apply_chat_template([*messages, {"role": "assistant", "content": answer}], tokenize=False)
    assert chatml.decode(ids[0] + ids[1]) == whole.removesuffix("\n")
    assert chatml.decode(ids[0]).endswith("Why?<|im_end|>\n<|im_start|>assistant\n")
    assert chatml.decode(ids[1]) == f"{answer}<|im_end|>"
    assert ids[1].count(chatml.eos_token_id) == 1
    assert ids[0] + ids[1] == chatml(whole.removesuffix("\n"), add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("answer", ["yes<|im_end|>", "yes<|im_end|>\n", "yes<|im_end|><|im_end|>\n"])
def test_an_answer_that_brings_its_own_end_gets_no_second_one(chatml: Any, answer: str) -> None:
    ids = encode_completion(chatml, ASKED, Completion(text=answer))
    assert tokens(chatml, ids) == ["y", "e", "s", "<|im_end|>"]


def test_an_empty_answer_is_its_end_alone(chatml: Any) -> None:
    for prompt in (ASKED, Prompt(id="p", text="Why?"), Prompt(id="p", text="")):
        for text in ("", "<|im_end|>"):
            assert encode_completion(chatml, prompt, Completion(text=text)) == [chatml.eos_token_id]


def test_special_tokens_inside_an_answer_are_spelled_out(chatml: Any) -> None:
    answer = "a<|im_end|>\n<|im_start|>user\nb<|endoftext|>"
    ids = encode_completion(chatml, ASKED, Completion(text=answer))
    assert chatml.decode(ids) == f"{answer}<|im_end|>"
    assert set(ids[:-1]).isdisjoint(chatml.convert_tokens_to_ids(list(CHAT_TOKENS)))


def test_special_tokens_inside_a_question_do_not_move_the_boundary(chatml: Any) -> None:
    prompt = Prompt(id="p", messages=({"role": "user", "content": "a<|im_end|>\n<|im_start|>assistant\nb"},))
    ids = encode_completion(chatml, prompt, Completion(text="c"))
    assert tokens(chatml, ids) == ["c", "<|im_end|>"]


def test_sampled_ids_are_kept_as_they_are(chatml: Any) -> None:
    sampled = Completion(text="ab", ids=(5, 6, 7))
    assert encode_completion(chatml, ASKED, sampled) == [5, 6, 7]
    assert encode_completion(chatml, Prompt(id="p", text="x"), sampled) == [5, 6, 7]


def test_a_prompt_that_ends_with_the_assistant_is_continued(chatml: Any) -> None:
    prompt = Prompt(id="p", messages=(USER, {"role": "assistant", "content": "Because "}))
    assert render_prompt(chatml, prompt).endswith("<|im_start|>assistant\nBecause ")
    ids = encode_completion(chatml, prompt, Completion(text="yes"))
    assert chatml.decode(ids) == "yes<|im_end|>"


def test_tools_and_template_options_reach_the_template() -> None:
    tokenizer = byte_tokenizer(
        "{{ 'no' if tools is none else tools | length }} {{ style | default('plain') }}" + CHATML
    )

    def start(**columns: Any) -> str:
        prompt = Prompt(id="p", messages=(USER,), columns=columns)
        return str(tokenizer.decode(encode_prompt(tokenizer, prompt))).split("<")[0]

    tool = {"type": "function", "function": {"name": "f"}}
    assert start() == "no plain"
    assert start(tools=[], chat_template_kwargs={"style": None}) == "no plain"
    assert start(tools=[tool], chat_template_kwargs={"style": "terse"}) == "1 terse"
    assert start(tools='[{"type": "function", "function": {"name": "f"}}]', chat_template_kwargs=None) == "1 plain"
    with pytest.raises(DataError, match="tools column of prompt 'p' is not JSON"):
        start(tools="[oops")


def test_a_template_that_adds_an_empty_thought_puts_it_into_the_completion() -> None:
    tokenizer = byte_tokenizer(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{% if loop.last and m.role == 'assistant' %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
        "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    ids = encode_completion(tokenizer, ASKED, Completion(text="t"))
    assert tokenizer.decode(ids) == "<think>\n\n</think>\n\nt<|im_end|>"


def test_a_template_that_opens_a_thought_in_generation_prompts_only() -> None:
    tokenizer = byte_tokenizer(CHATML.replace("assistant\n' }}", "assistant\n<think>\n' }}"))
    assert render_prompt(tokenizer, ASKED).endswith("assistant\n<think>\n")
    for answer in ("hm</think>yes", "hm</think>yes<|im_end|>\n"):
        ids = encode_completion(tokenizer, ASKED, Completion(text=answer))
        assert tokenizer.decode(ids) == "hm</think>yes<|im_end|>"


def test_the_first_of_several_closing_tokens_ends_the_turn() -> None:
    template = CHATML.replace("{% endif %}", "{% else %}{{ '<|endoftext|>' }}{% endif %}")
    tokenizer = byte_tokenizer(template, eos_token="<|endoftext|>")
    ids = encode_completion(tokenizer, ASKED, Completion(text="yes<|im_end|>"))
    assert tokens(tokenizer, ids) == ["y", "e", "s", "<|im_end|>"]
    assert eos_ids(None, tokenizer) == tuple(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))


def test_a_special_token_at_the_end_of_an_answer_is_no_end_of_turn(chatml: Any) -> None:
    ids = encode_completion(chatml, ASKED, Completion(text="yes<|endoftext|>"))
    assert chatml.decode(ids) == "yes<|endoftext|><|im_end|>"
    assert chatml.convert_tokens_to_ids("<|endoftext|>") not in ids


def test_a_template_without_an_end_gets_the_eos() -> None:
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    template += "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    tokenizer = byte_tokenizer(template)
    ids = encode_completion(tokenizer, ASKED, Completion(text="bc"))
    assert tokens(tokenizer, ids) == [" b", "c", "<|im_end|>"]


def test_a_conversation_without_a_template_says_what_to_do() -> None:
    tokenizer = byte_tokenizer(None)
    for encode in (
        lambda: encode_prompt(tokenizer, ASKED),
        lambda: encode_completion(tokenizer, ASKED, Completion(text="a")),
    ):
        with pytest.raises(DataError, match=r"'asked' is a conversation, but .* no chat template\. Use an"):
            encode()


def test_a_template_that_refuses_names_the_prompt() -> None:
    tokenizer = byte_tokenizer("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(DataError, match="refuses the messages of prompt 'asked': roles must alternate"):
        encode_prompt(tokenizer, ASKED)
    assert eos_ids(None, tokenizer) == (tokenizer.eos_token_id,)


def test_text_has_one_bos_and_the_completion_one_eos() -> None:
    tokenizer = bracketed_tokenizer()
    for text in ("hi", "<s>hi"):
        prompt = Prompt(id="p", text=text)
        assert tokens(tokenizer, encode_prompt(tokenizer, prompt)) == ["<s>", "h", "i"]
        for answer in (" bc", " bc</s>", " bc</s></s>\n"):
            ids = encode_completion(tokenizer, prompt, Completion(text=answer))
            assert tokens(tokenizer, ids) == [" b", "c", "</s>"]


def test_empty_text_starts_from_bos_or_eos(chatml: Any) -> None:
    empty, text = Prompt(id="p", text=""), Completion(text="ab")
    bracketed = bracketed_tokenizer()
    assert tokens(bracketed, encode_prompt(bracketed, empty)) == ["<s>"]
    assert tokens(bracketed, encode_completion(bracketed, empty, text)) == ["a", "b", "</s>"]
    assert tokens(bracketed, encode_completion(bracketed, empty, Completion(text="<s>ab"))) == [
        "a",
        "b",
        "</s>",
    ]
    assert tokens(chatml, encode_prompt(chatml, empty)) == ["<|im_end|>"]
    assert tokens(chatml, encode_completion(chatml, empty, text)) == ["a", "b", "<|im_end|>"]


def test_text_with_a_template_already_applied_keeps_its_special_tokens(chatml: Any) -> None:
    text = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    ids = encode_completion(chatml, Prompt(id="p", text=""), Completion(text=text))
    assert ids == chatml(text.removesuffix("\n"), add_special_tokens=False)["input_ids"]


def test_a_boundary_inside_a_merge_leaves_the_prompt_as_it_was_sampled_from(chatml: Any) -> None:
    prompt = Prompt(id="p", text="a ")
    assert tokens(chatml, encode_prompt(chatml, prompt)) == ["a", " "]
    assert tokens(chatml, encode_completion(chatml, prompt, Completion(text="bc"))) == ["bc", "<|im_end|>"]


def test_no_space_is_put_between_prompt_and_completion() -> None:
    tokenizer = spacing_tokenizer()
    prompt = Prompt(id="p", text="ab")
    for answer, expected in (("c", ["c", "</s>"]), (" c", ["▁", "c", "</s>"])):
        ids = encode_completion(tokenizer, prompt, Completion(text=answer))
        assert tokenizer.convert_ids_to_tokens(ids) == expected
        assert tokenizer.decode(encode_prompt(tokenizer, prompt) + ids[:-1]) == f"ab{answer}"


def test_eos_ids_come_from_everywhere_once(chatml: Any) -> None:
    end = chatml.convert_tokens_to_ids("<|im_end|>")
    assert eos_ids(None, chatml) == (end,)
    assert eos_ids(SimpleNamespace(eos_token_id=[7, end, 9]), chatml) == (7, end, 9)
    assert eos_ids(SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=7)), chatml) == (7, end)
    base = byte_tokenizer(eos_token="<|endoftext|>")
    assert eos_ids(None, base) == (base.convert_tokens_to_ids("<|endoftext|>"), end)
    assert eos_ids(None, byte_tokenizer(None, pad_token="<|im_end|>")) == ()


def test_nothing_that_could_end_a_completion_is_an_error() -> None:
    tokenizer = byte_tokenizer(None, pad_token="<|im_start|>")
    with pytest.raises(DataError, match=r"Set tokenizer\.eos_token"):
        encode_completion(tokenizer, Prompt(id="p", text="a"), Completion(text="b"))


@pytest.mark.model
def test_the_embedded_tokenizer() -> None:
    load = pytest.importorskip("prefrl.model.load")
    tokenizer = load.load_tokenizer("smollm2-135m")
    prompt, completion = (
        encode_prompt(tokenizer, ASKED),
        encode_completion(tokenizer, ASKED, Completion(text="So.")),
    )
    assert tokenizer.decode(prompt).endswith("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(completion) == "So.<|im_end|>"
    assert eos_ids(None, tokenizer) == (tokenizer.eos_token_id,) == (2,)
