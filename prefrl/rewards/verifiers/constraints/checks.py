"""The 25 verifiable instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911) as functions of a text.

Each follows the published rules, also where they surprise: words are runs of letters and digits, paragraphs are parted
by `***`, sections and highlighted parts are at least so many, bullets exactly so many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefrl.errors import RewardError, did_you_mean
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
_FENCE = re.compile(r"^```(?:json)?\s*|\s*```$", re.IGNORECASE)


def compare(count: int, relation: str, bound: int) -> bool:
    """Whether a count stands in a relation to a bound.

    Raises:
        RewardError: an unknown relation: passing everything, or nothing, would be a wrong reward.
    """
    if relation not in RELATIONS:
        raise RewardError(
            f"unknown relation {relation!r}; valid: {', '.join(RELATIONS)}.{did_you_mean(relation, RELATIONS)}"
        )
    return RELATIONS[relation](count, int(bound))


def keywords(text: str, keywords: Sequence[str]) -> bool:
    """Every keyword occurs, in any case."""
    return all(_occurs(word, text) for word in keywords)


def keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword occurs so often, in any case."""
    return compare(len(re.findall(re.escape(keyword), text, re.IGNORECASE)), relation, frequency)


def forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a whole word."""
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A character occurs so often, in any case."""
    return compare(text.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(text: str, language: str) -> bool:
    """The text is in a language, given by its ISO 639-1 code."""
    return is_language(text, language)


def number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    """So many sentences."""
    return compare(count_sentences(text), relation, num_sentences)


def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs parted by `***`; only the first and the last part may be empty, and do not count."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    inner = parts[1:-1]
    return all(inner) and sum(bool(part) for part in parts) == num_paragraphs


def number_words(text: str, num_words: int, relation: str) -> bool:
    """So many words."""
    return compare(len(split_words(text)), relation, num_words)


def nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs parted by an empty line, of which the nth begins with a word."""
    paragraphs = [part.strip() for part in re.split(r"\n\n", text) if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    start = paragraphs[nth_paragraph - 1].split()[0].lstrip("'\"")
    return re.split(r"[.,?!'\"]", start, maxsplit=1)[0].lower() == first_word.lower()


def number_placeholders(text: str, num_placeholders: int) -> bool:
    """At least so many `[placeholders]`."""
    return len(re.findall(r"\[.*?\]", text)) >= num_placeholders


def postscript(text: str, postscript_marker: str) -> bool:
    """A line with a postscript; spaces between its letters are fine."""
    letters = [re.escape(letter) for letter in postscript_marker.lower().split(".") if letter.strip()]
    last = r"\." if postscript_marker.rstrip().endswith(".") else ""
    return bool(re.search(r"\.\s?".join(letters) + last, text.lower()))


def number_bullet_lists(text: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `*` or `-`."""
    stars = re.findall(r"^\s*\*[^\*].*$", text, re.MULTILINE)
    return len(stars) + len(re.findall(r"^\s*-.*$", text, re.MULTILINE)) == num_bullets


def constrained_response(text: str) -> bool:
    """`My answer is yes.`, `My answer is no.` or `My answer is maybe.` is said, in any case, and only one of them."""
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
    try:
        json.loads(_FENCE.sub("", text.strip()).strip(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """A title in `<<double angular brackets>>`."""
    return any(found.strip("<> ").strip() for found in re.findall(r"<<[^\n]+>>", text))


def two_responses(text: str) -> bool:
    """Two different answers with six stars between them."""
    parts = [part.strip() for part in text.split("******")]
    answers = [part for part in parts if part]
    return len(answers) == 2 and all(parts[1:-1]) and answers[0] != answers[1]


def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The text begins with the request, word for word, in any case, and says something after it."""
    wanted, said = prompt_to_repeat.strip().lower(), text.strip().lower()
    return bool(wanted) and said.startswith(wanted)


def end_checker(text: str, end_phrase: str) -> bool:
    """The text ends with a phrase, in any case."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """So many words all in capitals."""
    return compare(sum(word.isupper() for word in tokens(text)), capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    """English, all in capitals."""
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
