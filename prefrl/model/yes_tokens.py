"""Which tokens say yes and which say no: spellings that are single tokens, audited for the tokenizer at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefrl.errors import ConfigError

YES = ("yes", "Yes", "YES", " yes", " Yes", " YES", "\u662f")
NO = ("no", "No", "NO", " no", " No", " NO", "\u5426")
_WHOLE = ("yes", "no")  # what a shorter piece of must never stand for
_SPACES = ("\u0120", "\u2581")  # how byte-level and sentencepiece vocabularies write a space before a word
_OTHERS = {"yes": (*YES, "true", "+", "1", "Y"), "no": (*NO, "false", "-", "0", "N")}  # what an error may suggest
_QUOTED = {True: "yes", False: "no"}
_ANCHOR = ":"  # what an answer is read after; alone, some tokenizers swallow the space before a word


@dataclass(frozen=True, slots=True)
class Spelling:
    """One spelling, and what the audit found: the single tokens that say exactly this, or why there are none."""

    text: str
    says: str
    ids: tuple[int, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class YesTokens:
    """Two disjoint sets of single tokens, and the audit of every spelling that was asked for.

    yes, no  token ids, ascending
    audit    every spelling in the order given
    """

    yes: tuple[int, ...]
    no: tuple[int, ...]
    audit: tuple[Spelling, ...] = ()

    def __post_init__(self) -> None:
        both = sorted(set(self.yes) & set(self.no))
        assert self.yes and self.no and not both, "`of` makes two sets without a common token"

    @classmethod
    def of(cls, tokenizer: Any, yes: Sequence[str] = (), no: Sequence[str] = ()) -> YesTokens:
        """The single tokens of every spelling; a spelling of several tokens is left out and says so in the audit.

        A token is kept only if it reads exactly as the spelling, or as the spelling after a space, when it follows
        another token. In a vocabulary of pieces (sentencepiece, byte level) one spelling can be several tokens.

        Args:
            tokenizer: of the model that will answer.
            yes: spellings of yes; none takes `YES`.
            no: spellings of no; none takes `NO`.

        Raises:
            ConfigError: no single token on one side, a token on both, or a spelling that begins another word of
                either side, as "N" begins "No" and "Not".
        """
        given = {"yes": tuple(yes) or YES, "no": tuple(no) or NO}
        words = {text.strip().casefold() for texts in given.values() for text in texts} | set(_WHOLE)
        for texts in given.values():
            for text in texts:
                _refuse_piece(text, words)
        audit = tuple(_audited(tokenizer, text, says) for says, texts in given.items() for text in texts)
        found = {says: {i for s in audit if s.says == says for i in s.ids} for says in given}
        _refuse_sets(tokenizer, audit, found["yes"], found["no"])
        return cls(tuple(sorted(found["yes"])), tuple(sorted(found["no"])), audit)

    @property
    def ids(self) -> tuple[int, ...]:
        """All of them, those for yes first."""
        return (*self.yes, *self.no)

    def report(self) -> list[dict[str, Any]]:
        """The audit as rows: spelling, side, token ids, why none."""
        return [{"spelling": s.text, "says": s.says, "ids": list(s.ids), "refused": s.refused} for s in self.audit]


def words_of(name: str, given: Any) -> tuple[str, ...]:
    """The spellings that somebody typed as `name`; none for nothing.

    Raises:
        ConfigError: one text in place of a list, or a bare yes or no, which YAML reads as true or false.
    """
    if given is None:
        return ()
    if isinstance(given, str):
        raise ConfigError(f"{name} is {given!r}, one text; expected a list of words. Type: {name}: [{given!r}]")
    words = tuple(given) if isinstance(given, Sequence) else (given,)
    wrong = [word for word in words if not isinstance(word, str)]
    if wrong:
        quoted = [_QUOTED.get(word, str(word)) if isinstance(word, bool) else str(word) for word in words]
        bare = ": YAML reads a bare yes or no as true or false" if isinstance(wrong[0], bool) else ""
        raise ConfigError(f"{name} has {wrong[0]!r} in it{bare}; expected words in quotes. Type: {name}: {quoted}")
    return words


def _refuse_sets(tokenizer: Any, audit: Sequence[Spelling], yes: set[int], no: set[int]) -> None:
    """Refuse sets of tokens that are empty, or have one in common; says words that this tokenizer has."""
    for says, ids, other in (("yes", yes, no), ("no", no, yes)):
        if ids:
            continue
        wrong = [f"{s.text!r} {s.refused}" for s in audit if s.says == says and s.refused]
        raise ConfigError(
            f"No spelling of {says} is a single token of this tokenizer. {'; '.join(wrong[:4])}. Name one that is"
            f"{_such_as(tokenizer, says, other)}."
        )
    if both := sorted(yes & no):
        said = list(dict.fromkeys(repr(s.text) for s in audit if set(s.ids) & set(both)))
        fewer = "no" if no - yes or not yes - no else "yes"
        rest = [s.text for s in audit if s.says == fewer and s.ids and not set(s.ids) & set(both)]
        typed = f": {fewer}_words: {rest}" if rest else _such_as(tokenizer, fewer, yes | no)
        raise ConfigError(
            f"{' and '.join(said)} would say yes and no (tokens {both}); expected two sets without a common token. "
            f"Keep {'it' if len(said) == 1 else 'them'} on one side only{typed}."
        )


def _such_as(tokenizer: Any, says: str, taken: set[int]) -> str:
    """Words that this tokenizer has a token for, which is not taken, as one types them."""
    known = (s for text in _OTHERS[says] if (s := _audited(tokenizer, text, says)).ids and not set(s.ids) & taken)
    found = next(known, None)
    return "" if found is None else f", such as {says}_words: [{found.text!r}]"


def _refuse_piece(text: str, words: set[str]) -> None:
    word = text.strip().casefold()
    if not word:
        raise ConfigError(f"The spelling {text!r} is empty; expected a word, such as 'yes'.")
    longer = sorted(other for other in words if other != word and other.startswith(word))
    if longer:
        raise ConfigError(
            f"The spelling {text!r} is only how {longer[0]!r} begins: its token would count other words too. "
            f"Write the word out: {longer[0]!r}."
        )


def _audited(tokenizer: Any, text: str, says: str) -> Spelling:
    encoded = [int(i) for i in tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]
    anchor = [int(i) for i in tokenizer(_ANCHOR, add_special_tokens=False, verbose=False)["input_ids"]]
    candidates = {*(encoded if len(encoded) == 1 else ()), *_pieces(tokenizer, text)}
    read = {i: _reads(tokenizer, anchor, i) for i in candidates}
    kept = tuple(sorted(i for i, said in read.items() if said in (text, f" {text}")))
    if kept:
        return Spelling(text, says, kept)
    why = f"is {len(encoded)} tokens" if len(encoded) != 1 else f"reads {read.get(encoded[0], '')!r}"
    return Spelling(text, says, (), why)


def _pieces(tokenizer: Any, text: str) -> Iterator[int]:
    """Ids of the pieces of the vocabulary that may spell the text, with a space before it or without."""
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    word = text.removeprefix(" ")
    forms = [text, *(f"{space}{word}" for space in _SPACES)] if text != word else [word, f"{_SPACES[1]}{word}"]
    yield from (vocabulary[form] for form in forms if form in vocabulary)


def _reads(tokenizer: Any, anchor: Sequence[int], token: int) -> str:
    """What a token says where it follows others; an unknown or special token reads as nothing of use."""
    if token in tokenizer.all_special_ids:
        return ""
    before, after = (str(tokenizer.decode(ids)) for ids in ([*anchor], [*anchor, token]))
    return after.removeprefix(before)
