"""The 25 verifiable instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911) as functions of a text.

Each follows the published rules, also where they surprise: words are runs of letters and digits, paragraphs are parted
by `***`, sections and highlighted parts are at least so many, bullets exactly so many, a keyword may be part of a word.
All take time that grows with the length of the text, whatever it holds. On purpose they differ in this:

- arguments are words, never regular expressions, and an empty one is an error; a forbidden word may end in a sign (C++)
  or stand in a script that has no spaces
- `constrained_response` takes any case, and one answer only
- sentences and words in capitals are found by the rules of `sentences`, not by those of NLTK
- several empty lines part paragraphs as one does in `nth_paragraph_first_word`
- English in capitals is told from its small letters; a language that cannot be told is not the one asked for
- NaN and Infinity are not JSON
- relations are `at least` and `less than`, and also `at most`, `more than` and `exactly`
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefrl.rewards.verifiers.constraints.languages import is_language
from prefrl.rewards.verifiers.constraints.sentences import count_sentences, split_words, tokens

RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "at least": lambda count, bound: count >= bound,
    "less than": lambda count, bound: count < bound,
    "at most": lambda count, bound: count <= bound,
    "more than": lambda count, bound: count > bound,
    "exactly": lambda count, bound: count == bound,
}
_ANSWERS = ("my answer is yes.", "my answer is no.", "my answer is maybe.")
_OPENING = re.compile(r"```(?:json)?", re.IGNORECASE)
_NO_SPACES = r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]"  # scripts that run words together


def keywords(text: str, keywords: Sequence[str]) -> bool:
    """Every keyword occurs, in any case."""
    return all(_occurs(word, text) for word in keywords)


def keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword occurs so often, in any case."""
    return RELATIONS[relation](len(re.findall(re.escape(keyword), text, re.IGNORECASE)), frequency)


def forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a whole word."""
    return not any(_occurs_alone(word, text) for word in forbidden_words)


def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A character occurs so often, in any case."""
    return RELATIONS[let_relation](text.lower().count(letter.lower()), let_frequency)


def response_language(text: str, language: str) -> bool:
    """The text is in a language, given by its ISO 639-1 code."""
    return is_language(text, language)


def number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    """So many sentences."""
    return RELATIONS[relation](count_sentences(text), num_sentences)


def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs parted by `***`; only the first and the last part may be empty, and do not count."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    inner = parts[1:-1]
    return all(inner) and sum(bool(part) for part in parts) == num_paragraphs


def number_words(text: str, num_words: int, relation: str) -> bool:
    """So many words."""
    return RELATIONS[relation](len(split_words(text)), num_words)


def nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs parted by an empty line, of which the nth begins with a word."""
    paragraphs = [part.strip() for part in re.split(r"\n\n", text) if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    start = paragraphs[nth_paragraph - 1].split()[0].lstrip("'\"")
    return re.split(r"[.,?!'\"]", start, maxsplit=1)[0].lower() == first_word.lower()


def number_placeholders(text: str, num_placeholders: int) -> bool:
    """At least so many `[placeholders]`."""
    lines = (line[: line.rfind("]") + 1] for line in text.split("\n"))  # no bracket is left open: time is linear
    return sum(len(re.findall(r"\[[^\]]*\]", line)) for line in lines) >= num_placeholders


def postscript(text: str, postscript_marker: str) -> bool:
    """A line with a postscript; spaces between its letters are fine."""
    letters = [re.escape(letter) for letter in postscript_marker.lower().split(".") if letter.strip()]
    last = r"\." if postscript_marker.rstrip().endswith(".") else ""
    return bool(re.search(r"\.\s?".join(letters) + last, text.lower()))


def number_bullet_lists(text: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `*` or `-`."""
    stars = re.findall(r"^[^\S\n]*\*[^*].*$", text, re.MULTILINE)
    return len(stars) + len(re.findall(r"^[^\S\n]*-.*$", text, re.MULTILINE)) == num_bullets


def constrained_response(text: str) -> bool:
    """`My answer is yes.`, `My answer is no.` or `My answer is maybe.` is said, and only one of them."""
    return sum(answer in text.lower() for answer in _ANSWERS) == 1


def number_highlighted_sections(text: str, num_highlights: int) -> bool:
    """At least so many parts in `*stars*` or `**stars**`, none of them empty."""
    single = [part.strip("*").strip() for part in re.findall(r"\*[^\n\*]*\*", text)]
    double = [part[2:-2].strip() for part in re.findall(r"\*\*[^\n\*]*\*\*", text)]
    return sum(map(bool, single)) + sum(map(bool, double)) >= num_highlights


def multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections that begin with a word and a number, such as `Section 1`."""
    return len(re.split(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", text)) - 1 >= num_sections


def json_format(text: str) -> bool:
    """The whole text is JSON, bare or in one fenced block."""
    whole = text.strip()
    opened = _OPENING.match(whole)
    try:
        json.loads(whole[opened.end() if opened else 0 :].removesuffix("```").strip(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """A title in `<<double angular brackets>>`."""
    spans = ((line, line.find("<<"), line.rfind(">>")) for line in text.split("\n"))
    return any(line[start:end].lstrip("<").rstrip(">").strip() for line, start, end in spans if 0 <= start < end)


def two_responses(text: str) -> bool:
    """Two different answers with six stars between them."""
    parts = [part.strip() for part in text.split("******")]
    answers = [part for part in parts if part]
    return len(answers) == 2 and all(parts[1:-1]) and answers[0] != answers[1]


def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The text begins with the request, word for word, in any case."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(text: str, end_phrase: str) -> bool:
    """The text ends with a phrase, in any case."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """So many words all in capitals."""
    return RELATIONS[capital_relation](sum(word.isupper() for word in tokens(text)), capital_frequency)


def english_capital(text: str) -> bool:
    """English, all in capitals; a guess by its small letters, for those of languages are told by them."""
    return text.isupper() and is_language(text.lower(), "en")


def english_lowercase(text: str) -> bool:
    """English, all in small letters."""
    return text.islower() and is_language(text, "en")


def no_comma(text: str) -> bool:
    """Something is said, without a comma."""
    return bool(text.strip()) and "," not in text


def quotation(text: str) -> bool:
    """The whole text stands in double quotation marks."""
    whole = text.strip()
    return len(whole) > 1 and whole[0] == '"' and whole[-1] == '"'


CHECKS: Mapping[str, Callable[..., bool]] = {
    "keywords:existence": keywords,
    "keywords:frequency": keyword_frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}


def _occurs(word: str, text: str) -> bool:
    return bool(re.search(re.escape(word), text, re.IGNORECASE))


def _occurs_alone(word: str, text: str) -> bool:
    """Whether a word stands in a text as a word of its own, where its script parts words."""
    before = "" if re.match(_NO_SPACES, word) else r"(?<!\w)"
    after = "" if re.match(_NO_SPACES, word[-1:]) else r"(?!\w)"
    return bool(re.search(before + re.escape(word) + after, text, re.IGNORECASE))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
