"""Which tokens say yes and no: for a byte-pair tokenizer, sentencepiece ones, and one that has bytes alone."""

from __future__ import annotations

import pytest
from tiny import byte_tokenizer, digit_tokenizer
from tokenizers import SentencePieceBPETokenizer, SentencePieceUnigramTokenizer
from transformers import PreTrainedTokenizerFast

from prefrl.errors import ConfigError
from prefrl.model.load import load_tokenizer
from prefrl.model.yes_tokens import NO, YES, YesTokens, words_of

WORDS = "Is it right? yes Yes no No \u662f \u5426 : maybe notes Nobody yesterday"


def sentencepiece(kind):
    """A tokenizer in the manner of sentencepiece: a space before a word is a mark on its first piece."""
    made, size = kind(), 120 if kind is SentencePieceBPETokenizer else 80
    options = {} if kind is SentencePieceBPETokenizer else {"unk_token": "<unk>"}
    specials = ["<unk>", "<s>", "</s>"]
    made.train_from_iterator([WORDS] * 50, vocab_size=size, show_progress=False, special_tokens=specials, **options)
    core = made._tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def spelled(tokenizer, ids):
    return {tokenizer.convert_ids_to_tokens(i) for i in ids}


def test_smollm2():
    tokenizer = load_tokenizer("smollm2-135m")
    tokens = YesTokens.of(tokenizer)
    assert spelled(tokenizer, tokens.yes) == {"yes", "Yes", "\u0120yes", "\u0120Yes", "\u00e6\u013a\u00af"}
    assert spelled(tokenizer, tokens.no) == {"no", "No", "NO", "\u0120no", "\u0120No", "\u0120NO"}
    refused = {row["spelling"]: row["refused"] for row in tokens.report() if row["refused"]}
    assert refused == {"YES": "is 2 tokens", " YES": "is 2 tokens", "\u5426": "is 2 tokens"}
    assert [row["spelling"] for row in tokens.report()] == [*YES, *NO]


@pytest.mark.parametrize("kind", [SentencePieceUnigramTokenizer, SentencePieceBPETokenizer])
def test_sentencepiece(kind):
    tokenizer = sentencepiece(kind)
    tokens = YesTokens.of(tokenizer)
    for ids, word, sign in ((tokens.yes, "yes", "\u662f"), (tokens.no, "no", "\u5426")):
        found = spelled(tokenizer, ids)
        assert {f"\u2581{word}", word, sign} <= found
        assert {piece.lstrip("\u2581").lower() for piece in found} == {word, sign}
    assert not set(tokens.yes) & set(tokens.no)
    longer = {"\u2581yesterday", "\u2581notes", "\u2581Nobody"} & set(tokenizer.get_vocab())
    assert not longer & spelled(tokenizer, tokens.ids)


def test_a_tokenizer_of_bytes_has_no_single_token_for_a_word():
    with pytest.raises(
        ConfigError, match=r"No spelling of yes is a single token.*'yes' is 3 tokens.*yes_words: \['\+'\]"
    ):
        YesTokens.of(byte_tokenizer())
    with pytest.raises(ConfigError, match="No spelling of no is a single token"):
        YesTokens.of(byte_tokenizer(), ["+"])
    tokens = YesTokens.of(byte_tokenizer(), ["+", "yes"], ["-"])
    assert [byte_tokenizer().decode([i]) for i in tokens.ids] == ["+", "-"]


def test_equal_tokens_count_once_and_in_one_order():
    tokenizer = load_tokenizer("smollm2-135m")
    twice = YesTokens.of(tokenizer, ["yes", "yes", " yes"], ["no", " no", "no"])
    assert twice.yes == tuple(sorted({10407, 9805}))
    assert twice.ids == (*twice.yes, *twice.no)
    assert len(set(twice.ids)) == 4


def test_overlapping_sets_are_refused():
    """What to type is a word that is left, or one that the tokenizer has."""
    with pytest.raises(ConfigError, match=r"'1' would say yes and no \(tokens \[4\]\).*side only: no_words: \['0'\]"):
        YesTokens.of(digit_tokenizer(), ["1"], ["0", "1"])
    with pytest.raises(ConfigError, match=r"Keep it on one side only: yes_words: \['2'\]"):
        YesTokens.of(digit_tokenizer(), ["1", "2"], ["1"])
    with pytest.raises(ConfigError, match=r"Keep it on one side only, such as no_words: \['0'\]"):
        YesTokens.of(digit_tokenizer(), ["1"], ["1"])


def test_a_word_that_is_suggested_is_one_of_the_tokenizer():
    with pytest.raises(ConfigError, match=r"'good' is 4 tokens\. Name one that is, such as yes_words: \['1'\]\."):
        YesTokens.of(digit_tokenizer(), ["good"], ["0"])
    with pytest.raises(ConfigError, match=r"is a single token of this tokenizer.*Name one that is\.$"):
        YesTokens.of(digit_tokenizer(), ["good"], ["1"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("right", r"one text; expected a list of words\. Type: yes_words: \['right'\]"),
        ([True, "+"], r"True in it: YAML reads a bare yes or no.*Type: yes_words: \['yes', '\+'\]"),
        (False, r"False in it: YAML reads.*Type: yes_words: \['no'\]"),
        ([3], r"3 in it; expected words in quotes\. Type: yes_words: \['3'\]"),
    ],
)
def test_what_is_no_list_of_words_says_what_to_type(given, said):
    with pytest.raises(ConfigError, match=said):
        words_of("yes_words", given)
    assert words_of("yes_words", None) == words_of("yes_words", []) == ()
    assert words_of("yes_words", ["a", "b"]) == ("a", "b")


@pytest.mark.parametrize("piece", ["Y", "n", " N", "ye"])
def test_a_piece_of_a_word_is_refused(piece):
    """The token N also begins None and Not."""
    with pytest.raises(ConfigError, match=r"is only how '(yes|no)' begins"):
        YesTokens.of(load_tokenizer("smollm2-135m"), [piece], ["wrong"])
    with pytest.raises(ConfigError, match="is only how 'incorrect' begins"):
        YesTokens.of(load_tokenizer("smollm2-135m"), ["correct"], ["in", "incorrect"])


def test_an_empty_or_unknown_spelling_is_refused():
    with pytest.raises(ConfigError, match="is empty"):
        YesTokens.of(digit_tokenizer(), [" "], ["0"])
    unknown = YesTokens.of(digit_tokenizer(), ["1", "x"], ["0"])  # x is encoded as the unknown token
    assert unknown.yes == (4,)
    assert unknown.audit[1].ids == () and unknown.audit[1].refused


def test_a_token_that_reads_as_something_else_is_refused():
    """A lower-casing tokenizer encodes YES as yes: the same token, whatever was asked for, but it must read so."""
    tokenizer = sentencepiece(SentencePieceUnigramTokenizer)
    from tokenizers import normalizers

    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokens = YesTokens.of(tokenizer, ["yes", "YES"], ["no"])
    assert tokens.audit[1].ids == ()
    assert "reads" in tokens.audit[1].refused
